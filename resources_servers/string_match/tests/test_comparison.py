# SPDX-License-Identifier: Apache-2.0
"""Two ways to write an answer are worth 1, a number within one percent 0.98, and anything else nothing."""

import pytest
from hypothesis import given, strategies as st

from resources_servers.string_match.comparison import score_answer


def score(expected: str, answer: str) -> float:
    return score_answer(answer, expected, case_sensitive=False)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("Paris", "paris"),
        ("Paris", "Paris.!?"),
        ("?", "?"),
        ("Paris", '"Paris"'),
        ("Paris", "'Paris'"),
        ("True", "true"),
        ("\uff11\uff12", "12"),
        ("42", "42.0"),
        ("12", "012"),
        ("42", "$42"),
        ("42", r"42\%"),
        ("0", "0.0"),
        ("1e3", "1000"),
        ("nan", "NaN"),
        ("1,000", "1000"),
        ("50%", r"50\%"),
        ("about 1,000 men", "about 1000 men"),
        ("yes", r"\textbf{yes}"),
        ("yes", r"\(yes\)"),
        ("yes", "$yes$"),
        ("yes and no", r"\emph{yes \text{and} no}"),
        ("x {y} z", r"\text{x {y} z"),
        ("hello world", "hello  world"),
        ("red, blue", "red; blue"),
        ("red, green, yellow, orange and blue", "red, green, yellow, orange, blue"),
        ("California", "CA"),
        ("New York", "NY"),
        ("Georgia", "GA"),
        ("West Virginia", "wv"),
        ("Arkansas", "AR"),
        ("Oregon", "or"),
        ("x cm", "x"),
        (r"\frac{1}{2} cm", r"\frac{1}{2}"),
    ],
)
def test_the_same_answer_in_other_words_is_worth_one(expected, answer):
    assert score(expected, answer) == 1.0


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("50%", "50"),
        ("3.14", "3.1415"),
        ("100", "99.5"),
        ("100", "99"),
        ("90", "90°"),
        (r"90^\circ", "90°"),
        (r"90^{\circ}", "90°"),
        ("5 cm", "5"),
        ("5", "5cm"),
        ("10 km", "10.05 km"),
        ("0", "1e-12"),
        ("€5", "5.01"),
        ("100", r"\text{99.5}"),
    ],
)
def test_a_number_within_one_percent_is_worth_a_little_less(expected, answer):
    assert score(expected, answer) == 0.98


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("Paris", "**Paris**"),
        ("Paris", "London"),
        ("A", "A)"),
        ("no", "not"),
        ("x^2", "x²"),
        (r"\sqrt{2}", "√2"),
        ("red, blue", "red and blue"),
        ("red and blue", "red blue"),
        ("red, blue", "blue, red"),
        ("1/2", "0.5"),
        ("½", "1/2"),
        ("-5", "−5"),
        ("100", "98.9"),
        ("100", "-100"),
        ("0", "1"),
        ("inf", "5"),
        ("5", "inf"),
        ("m", "5m"),
    ],
)
def test_another_answer_is_worth_nothing(expected, answer):
    assert score(expected, answer) == 0.0


@pytest.mark.parametrize(
    ("expected", "answer"), [("10 km", "10 kg"), ("5 m", "5.01 mm"), ("x km", "x kg"), ("5°", "5 m")]
)
def test_different_units_are_different_answers(expected, answer):
    assert score(expected, answer) == 0.0


@pytest.mark.parametrize(("expected", "answer"), [("Rome", "Roe"), ("mammal", "aal"), ("5 mass", "5 ass")])
def test_letters_inside_a_word_are_no_unit(expected, answer):
    assert score(expected, answer) == 0.0


@given(st.text(min_size=1).filter(str.strip))
def test_an_answer_is_the_same_as_itself(text):
    assert score(text, text) == 1.0
