# SPDX-License-Identifier: Apache-2.0
"""Lengths of texts in tokens and words: known counts, and word by word the same as all at once."""

import json

import pytest
from hypothesis import example, given, settings, strategies as st

from nemo_gym._data import text_lengths
from nemo_gym._data.text_lengths import TextLengths, load_tokenizer

pytest.importorskip("rs_bpe")

# Whatever may stand beside a space in the patterns of the tokenizer: letters, digits, marks, all kinds of white space.
PIECES = st.sampled_from(
    [
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\u00a0",
        "\u3000",
        "\x85",
        "\x1c",
        "word",
        "Word's",
        "we'LL",
        "12345",
        "/",
        "//\n",
        ".",
        "!?",
        "\\",
        '"',
        "é",
        "日本語",
        "😀",
        "\u0301",
        "İ",
        "ʰ",
        "²",
        "<|endoftext|>",
        "</s>",
        "x" * 70,
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join)


@pytest.fixture(scope="module")
def lengths():
    return TextLengths(load_tokenizer())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("tiktoken is great!", 6),
        ("antidisestablishmentarianism", 6),
        ("2 + 2 = 4", 7),
        ("お誕生日おめでとう", 8),
        ("hello world", 2),
    ],
)
def test_counts_are_those_that_openai_publishes(lengths, text, count):
    assert lengths.of(text)[1] == count


def test_special_tokens_in_a_text_are_plain_text(lengths):
    assert lengths.of("<|endoftext|>")[1] > 1


@settings(max_examples=100, deadline=None)
@given(TEXTS)
@example("a  b")
@example(" a")
@example("a ")
@example("a \nb")
@example("a\n b")
@example("a. \n\n  b")
@example("x \u3000 y")
def test_word_by_word_is_the_same_as_all_at_once(text):
    assert TextLengths(load_tokenizer()).of(text) == (len(json.dumps(text).split()), load_tokenizer()(text))


@pytest.mark.parametrize("code", range(128))
def test_every_ascii_character_beside_a_space_is_white_or_not_as_python_says(code):
    text = f"a{chr(code)} b {chr(code)}c"
    assert TextLengths(load_tokenizer()).of(text) == (len(json.dumps(text).split()), load_tokenizer()(text))


def test_a_word_is_tokenized_once_however_often_texts_have_it():
    asked = []
    lengths = TextLengths(lambda word: asked.append(word) or len(word))
    assert [lengths.of(text) for text in ("one two two", "two one")] == [(3, 11), (2, 7)]
    assert sorted(asked) == [" one", " two", "one", "two"]


def test_words_that_are_forgotten_are_counted_again(monkeypatch):
    monkeypatch.setattr(text_lengths, "_MOST_KEPT", 3)
    lengths = TextLengths(load_tokenizer())
    text = " ".join(f"word{number}" for number in range(20))
    assert lengths.of(text)[1] == lengths.of(text)[1] == load_tokenizer()(text)


def test_half_of_a_surrogate_pair_counts_as_the_character_that_replaces_it(lengths):
    assert lengths.of("a \ud800 b")[1] == lengths.of("a ? b")[1]


def test_without_the_tokenizer_there_are_words_only(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rs_bpe.bpe", None)
    load_tokenizer.cache_clear()
    try:
        assert load_tokenizer() is None
        assert TextLengths(None).of("two words") == (2, 0)
    finally:
        load_tokenizer.cache_clear()
