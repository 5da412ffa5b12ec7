# SPDX-License-Identifier: Apache-2.0
from checks import error_of
from typeset.layout import fill, justify, justify_text, make_columns, wrap
from typeset.words import split_long, split_paragraphs


def test_a_line_may_be_exactly_as_wide_as_allowed():
    assert wrap("aaa bbb", 7) == ["aaa bbb"]
    assert wrap("aaa bbb", 6) == ["aaa", "bbb"]


def test_paragraphs_stay_apart():
    assert split_paragraphs("a b\nc\n\n \n\nd\n") == [["a", "b", "c"], ["d"]]
    assert wrap("a\n\nb", 5) == ["a", "", "b"]


def test_nothing_gives_no_lines():
    assert wrap("", 5) == []
    assert wrap("\n\n", 5) == []
    assert fill([], 5) == []


def test_long_words_are_cut():
    assert split_long("abcdefg", 3) == ["abc", "def", "g"]
    assert wrap("x abcdefg y", 3) == ["x", "abc", "def", "g y"]


def test_a_width_below_one_is_refused():
    assert error_of(wrap, "a", 0) == "ValueError"


def test_gaps_on_the_left_are_wider():
    assert justify("a b c", 8) == "a   b  c"
    assert justify("a b c d", 12) == "a   b   c  d"


def test_a_single_word_is_not_stretched():
    assert justify("word", 10) == "word"
    assert justify("", 10) == ""


def test_a_line_that_is_too_long_stays():
    assert justify("aaa bbb", 5) == "aaa bbb"


def test_the_last_line_of_each_paragraph_is_not_stretched():
    assert justify_text("a b ccc d\n\ne f ggg h", 6) == ["a    b", "ccc d", "", "e    f", "ggg h"]


def test_columns_are_as_wide_as_their_widest_cell():
    assert make_columns([["a", "bbb", "c"], ["aaaa", "b", "c"]]) == ["a     bbb  c", "aaaa  b    c"]


def test_rows_may_be_short():
    assert make_columns([["a"], ["bb", "c"]]) == ["a", "bb  c"]
    assert make_columns([["x", "y"], ["long"]]) == ["x     y", "long"]
    assert make_columns([]) == []
