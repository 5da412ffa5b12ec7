# SPDX-License-Identifier: Apache-2.0
"""Words, sentences and tokens are those of the reference, with Punkt's model on this machine or without."""

import pytest

from resources_servers.instruction_following.text_units import sentences, split_sentences, tokens, words


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One. Two! Three?", 3),
        ("Dr. Smith went to Washington at 5 p.m. yesterday.", 1),
        ("Mr. and Mrs. Jones live on Main St. in Ohio.", 1),
        ("Version 2.0 costs $3.50 per unit.", 1),
        ('He said "hello." Then he left.', 2),
        ("A. First point", 2),
        ("J. Smith came.", 1),
        ("U.S. policy (e.g. trade) changed.", 2),
        ("no end here", 1),
    ],
)
def test_sentences_are_counted_as_punkt_does(text, count):
    assert len(sentences(text)) == count


def test_marks_quotes_and_contractions_are_tokens():
    assert tokens('Don\'t say "no" (please). Go.') == [
        *("Do", "n't", "say", "``", "no", "''", "(", "please", ")", ".", "Go", ".")
    ]


def test_combining_marks_belong_to_their_word():
    assert words("परीक्षा don't under_score") == ["परीक्षा", "don", "t", "under_score"]


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("", []),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Smith has 3.5 cups. See example.com now.", ["Dr. Smith has 3.5 cups.", "See example.com now."]),
        ("Wait... what?", ["Wait...", "what?"]),
        ("She has a Ph.D. in art.", ["She has a Ph.D. in art."]),
        ("Ask the U.S.A. They know.", ["Ask the U.S.A.", "They know."]),
        ("Smith Inc. Mr. Bo left.", ["Smith Inc", "Mr. Bo left."]),
        ("Smith Inc. grew.", ["Smith Inc. grew."]),
        ('He said "no." Then left.', ['He said "no".', "Then left."]),
        ("no end", ["no end"]),
        ("One.!Two.", ["One.", "!", "Two."]),
        ("one\ntwo. c", ["one two.", "c"]),
    ],
)
def test_the_other_splitter_follows_its_list_of_exceptions(text, split):
    assert split_sentences(text) == split
