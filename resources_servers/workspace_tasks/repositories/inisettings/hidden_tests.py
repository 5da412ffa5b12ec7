# SPDX-License-Identifier: Apache-2.0
from checks import error_of
from inisettings.layers import get, get_flag, load, merge
from inisettings.reader import cut_comment, read, unquote


def test_a_value_may_hold_an_equals_sign():
    assert read("query = a=b") == {"main": {"query": "a=b"}}


def test_a_hash_in_quotes_begins_no_comment():
    assert read('name = "My # server" # really') == {"main": {"name": "My # server"}}
    assert cut_comment('"a" # b') == '"a" '


def test_quotes_are_removed_only_in_pairs():
    assert [unquote(text) for text in ('"a b"', '"', '"a', "a", '""')] == ["a b", '"', '"a', "a", ""]


def test_blanks_in_quotes_are_kept():
    assert read('a = "  x "') == {"main": {"a": "  x "}}


def test_names_do_not_depend_on_case():
    assert read("[Server]\nPort = 80\n[SERVER]\nName = X") == {"server": {"port": "80", "name": "X"}}
    assert get({"server": {"port": "80"}}, "Server.PORT") == "80"


def test_a_section_without_settings_is_there():
    assert read("[empty]\n") == {"empty": {}}


def test_bad_lines_are_refused():
    assert [error_of(read, text) for text in ("[open", "just words", "= 3")] == ["ValueError"] * 3


def test_an_empty_value_is_read_as_empty():
    assert read("a =\n") == {"main": {"a": ""}}


def test_sections_are_merged_key_by_key():
    assert load(["[s]\na = 1\nb = 2", "[s]\nb = 3\n[t]\nc = 4"]) == {"s": {"a": "1", "b": "3"}, "t": {"c": "4"}}


def test_an_empty_value_removes_a_setting():
    assert load(["a = 1\nb = 2", "a ="]) == {"main": {"b": "2"}}
    assert load(["a =", "a = 1"]) == {"main": {"a": "1"}}


def test_merging_twice_gives_the_same():
    layers = [{"s": {"a": "1"}}, {"s": {"a": "2", "b": "3"}}]
    assert merge(layers) == merge(layers) == {"s": {"a": "2", "b": "3"}}


def test_main_stands_in_for_a_section():
    settings = load(["port = 1\n[web]\nname = x"])
    assert get(settings, "web.port") == "1"
    assert get(settings, "web.name") == "x"
    assert get(settings, "other.port") == "1"


def test_a_section_goes_before_main():
    assert get(load(["port = 1\n[web]\nport = 2"]), "web.port") == "2"
    assert get(load(["port = 1\n[web]\nport = 2"]), "port") == "1"


def test_sections_may_have_points_in_their_names():
    assert get(load(["[a.b]\nc = 1"]), "a.b.c") == "1"


def test_defaults_and_missing_settings():
    assert error_of(get, {}, "a.b") == "LookupError"
    assert get({}, "a.b", "") == ""


def test_flags():
    settings = load(["a = Yes\nb = off\nc = maybe\nd = 1"])
    assert [get_flag(settings, key) for key in "abd"] == [True, False, True]
    assert error_of(get_flag, settings, "c") == "ValueError"
    assert get_flag(settings, "missing", True) is True
    assert get_flag(settings, "missing") is False
