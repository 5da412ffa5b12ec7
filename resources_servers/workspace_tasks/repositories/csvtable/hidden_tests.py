# SPDX-License-Identifier: Apache-2.0
from checks import error_of
from csvtable.reader import read_rows
from csvtable.table import group_totals, join, parse, total


def test_empty_fields_are_kept():
    assert read_rows("a,,c\n,,\n") == [["a", "", "c"], ["", "", ""]]


def test_empty_lines_are_left_out():
    assert read_rows("a\n\n\nb\n") == [["a"], ["b"]]


def test_a_quoted_empty_field_is_a_line():
    assert read_rows('a\n""\nb') == [["a"], [""], ["b"]]
    assert read_rows('a\n""') == [["a"], [""]]


def test_a_doubled_quote_is_one_quote():
    assert read_rows('"say ""hi""",x') == [['say "hi"', "x"]]
    assert read_rows('"""",x') == [['"', "x"]]


def test_line_ends_in_quotes_belong_to_the_field():
    assert read_rows('"a\nb",c\nd,e') == [["a\nb", "c"], ["d", "e"]]


def test_windows_line_ends():
    assert read_rows("a,b\r\nc,d\r\n") == [["a", "b"], ["c", "d"]]


def test_a_quote_inside_a_plain_field_is_a_character():
    assert read_rows('5" pipe,2') == [['5" pipe', "2"]]


def test_an_open_quote_is_refused():
    assert error_of(read_rows, '"abc') == "ValueError"


def test_parse_fills_short_rows_and_refuses_long_ones():
    assert parse("a,b,c\n1\n") == [{"a": "1", "b": "", "c": ""}]
    assert error_of(parse, "a,b\n1,2,3\n") == "ValueError"
    assert parse("") == []


def test_parse_trims_names_but_not_values():
    assert parse("a , b\n1 , 2\n") == [{"a": "1 ", "b": " 2"}]
    assert error_of(parse, "a, a\n1,2\n") == "ValueError"


def test_total_skips_empty_fields():
    assert total([{"n": "1"}, {"n": " "}, {"n": ""}, {"n": "-4"}], "n") == -3


def test_group_totals_in_order_of_appearance():
    table = parse("who,sum\nzoe,1\namy,2\nzoe,3\n")
    assert list(group_totals(table, "who", "sum").items()) == [("zoe", 4), ("amy", 2)]


def test_join_gives_every_pair():
    left = [{"k": "1", "a": "x"}, {"k": "2", "a": "y"}]
    right = [{"k": "1", "b": "p"}, {"k": "1", "b": "q"}, {"k": "3", "b": "r"}]
    assert join(left, right, "k") == [{"k": "1", "a": "x", "b": "p"}, {"k": "1", "a": "x", "b": "q"}]


def test_columns_of_the_left_win_in_a_join():
    assert join([{"k": "1", "a": "x"}], [{"k": "1", "a": "z"}], "k") == [{"k": "1", "a": "x"}]
