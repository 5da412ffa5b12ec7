# SPDX-License-Identifier: Apache-2.0
from calc.evaluate import evaluate
from calc.lexer import split
from checks import error_of


def test_names_hold_digits_and_underscores():
    assert split("a_1+_b2") == ["a_1", "+", "_b2"]
    assert evaluate("a_1 * _b2", {"a_1": 2, "_b2": 5}) == 10


def test_numbers_may_begin_with_a_point():
    assert split(".5+1.") == [".5", "+", "1."]
    assert evaluate(".5 + 1.") == 1.5


def test_strange_characters_are_refused():
    assert error_of(split, "1 $ 2") == "ValueError"
    assert error_of(evaluate, "1.2.3") == "ValueError"


def test_minus_goes_from_left_to_right():
    assert evaluate("10 - 3 - 2") == 5
    assert evaluate("10 - 3 + 2") == 9


def test_division_goes_from_left_to_right():
    assert evaluate("100 / 10 / 2") == 5
    assert evaluate("100 / 10 * 2") == 20


def test_powers_go_from_right_to_left():
    assert evaluate("2 ^ 3 ^ 2") == 512


def test_a_sign_is_weaker_than_a_power():
    assert evaluate("-2 ^ 2") == -4
    assert evaluate("(-2) ^ 2") == 4
    assert evaluate("2 ^ -1") == 0.5


def test_signs_can_be_repeated():
    assert evaluate("3 - -2") == 5
    assert evaluate("--2") == 2
    assert evaluate("2 * -3") == -6


def test_functions():
    assert evaluate("max(1, 2 + 3, 4)") == 5
    assert evaluate("min(4, abs(-3))") == 3
    assert evaluate("max(1, 2) * 2") == 4


def test_a_function_name_alone_is_a_name():
    assert evaluate("min + 1", {"min": 1}) == 2


def test_unknown_names():
    assert error_of(evaluate, "y + 1") == "LookupError"
    assert evaluate("x", {"x": 0}) == 0


def test_what_is_left_over_is_refused():
    assert error_of(evaluate, "1 2") == "ValueError"
    assert error_of(evaluate, "(1 + 2") == "ValueError"
    assert error_of(evaluate, "1 + 2)") == "ValueError"
    assert error_of(evaluate, "1 +") == "ValueError"
    assert error_of(evaluate, "max(1, 2") == "ValueError"


def test_division_by_zero_is_not_hidden():
    assert error_of(evaluate, "1 / 0") == "ZeroDivisionError"
