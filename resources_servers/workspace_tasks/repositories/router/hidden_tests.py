# SPDX-License-Identifier: Apache-2.0
from checks import error_of
from router.pattern import match, rank, split_path
from router.routes import Router


def build(*routes):
    router = Router()
    for method, pattern, handler in routes:
        router.add(method, pattern, handler)
    return router


def test_slashes_do_not_count():
    assert split_path("//a///b/") == ["a", "b"]
    assert match("/a/{b}", "a/x/") == {"b": "x"}
    assert match("/", "") == {}


def test_longer_and_shorter_paths_do_not_fit():
    assert match("/a/{b}", "/a") is None
    assert match("/a/{b}", "/a/b/c") is None
    assert match("/a", "/a/b") is None


def test_a_path_without_fields_fits_with_no_values():
    assert match("/a/b", "/a/b") == {}


def test_whole_numbers():
    assert match("/{n:int}", "/007") == {"n": 7}
    assert match("/{n:int}", "/x") is None
    assert match("/{n:int}", "/-1") is None


def test_the_rest_of_a_path():
    assert match("/files/{path*}", "/files/a/b/c") == {"path": "a/b/c"}
    assert match("/files/{path*}", "/files") is None
    assert match("/{a}/{rest*}", "/x/y") == {"a": "x", "rest": "y"}


def test_words_are_more_exact_than_numbers_than_fields_than_rests():
    patterns = ["/{a*}", "/{a}", "/{a:int}", "/a"]
    assert sorted(patterns, key=rank) == ["/a", "/{a:int}", "/{a}", "/{a*}"]


def test_the_most_exact_handler_is_found_whatever_the_order():
    routes = [("GET", "/{rest*}", "any"), ("GET", "/users/{name}", "user"), ("GET", "/users/me", "me")]
    for router in (build(*routes), build(*routes[::-1])):
        assert router.find("GET", "/users/me")[0] == "me"
        assert router.find("GET", "/users/amy")[0] == "user"
        assert router.find("GET", "/else/where")[0] == "any"


def test_exactness_counts_from_the_left():
    router = build(("GET", "/{a}/x", "late"), ("GET", "/a/{b}", "early"))
    assert router.find("GET", "/a/x")[0] == "early"


def test_methods_do_not_depend_on_case():
    router = build(("get", "/a", "one"), ("POST", "/a", "two"))
    assert router.find("post", "/a")[0] == "two"
    assert error_of(router.add, "GET", "/a", "three") == "ValueError"


def test_a_wrong_method_is_told_from_a_wrong_path():
    router = build(("GET", "/a", "one"), ("PUT", "/{x}", "two"))
    assert error_of(router.find, "DELETE", "/a") == "ValueError"
    assert error_of(router.find, "GET", "/a/b") == "LookupError"
    assert router.list_methods("/a") == ["GET", "PUT"]


def test_a_less_exact_pattern_serves_its_own_method():
    router = build(("GET", "/a", "one"), ("PUT", "/{x}", "two"))
    assert router.find("PUT", "/a") == ("two", {"x": "a"}, {})


def test_queries_keep_every_value():
    router = build(("GET", "/a", "one"))
    assert router.find("GET", "/a?x=1&x=2&y=&z=a%20b")[2] == {"x": ["1", "2"], "y": [""], "z": ["a b"]}


def test_a_pattern_without_values_is_found():
    assert build(("GET", "/a", "one")).find("GET", "/a") == ("one", {}, {})
