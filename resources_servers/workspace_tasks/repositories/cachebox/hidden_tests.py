# SPDX-License-Identifier: Apache-2.0
from cachebox.cache import Cache
from checks import error_of


def fill(size, keys, ttl=None):
    cache = Cache(size, ttl)
    for key in keys:
        cache.put(key, key.upper(), 0)
    return cache


def test_a_cache_without_room_is_refused():
    assert error_of(Cache, 0) == "ValueError"


def test_getting_a_value_keeps_it():
    cache = fill(2, "ab")
    assert cache.get("a", 1) == "A"
    cache.put("c", "C", 2)
    assert cache.list_keys(2) == ["a", "c"]


def test_peeking_does_not_keep_it():
    cache = fill(2, "ab")
    assert cache.peek("a", 1) == "A"
    cache.put("c", "C", 2)
    assert cache.list_keys(2) == ["b", "c"]
    assert cache.count_hits("b") == 0


def test_putting_a_key_again_evicts_nothing():
    cache = fill(2, "ab")
    cache.put("a", "new", 1)
    assert cache.list_keys(1) == ["b", "a"]
    assert cache.evicted == 0
    assert cache.get("a", 1) == "new"


def test_a_value_expires_at_the_moment_its_time_is_over():
    cache = fill(2, "a", ttl=10)
    assert cache.get("a", 9.5) == "A"
    assert cache.get("a", 10) is None
    assert cache.peek("a", 10) is None


def test_a_ttl_of_zero_is_a_ttl():
    cache = Cache(2, 10)
    cache.put("a", 1, 0, 0)
    assert cache.get("a", 0) is None


def test_the_ttl_of_a_value_goes_before_that_of_the_cache():
    cache = Cache(2, 10)
    cache.put("a", 1, 0, 100)
    cache.put("b", 2, 0)
    assert cache.list_keys(50) == ["a"]


def test_getting_does_not_prolong():
    cache = fill(2, "a", ttl=10)
    assert cache.get("a", 6) == "A"
    assert cache.get("a", 12) is None


def test_what_has_expired_makes_room_before_anything_is_evicted():
    cache = Cache(2)
    cache.put("a", 1, 0)
    cache.put("b", 2, 0, 5)
    cache.put("c", 3, 6)
    assert cache.list_keys(6) == ["a", "c"]
    assert cache.evicted == 0


def test_evictions_are_counted():
    assert fill(2, "abcde").evicted == 3


def test_hits_begin_anew_with_a_new_value():
    cache = fill(2, "a")
    cache.get("a", 1)
    cache.get("a", 1)
    assert cache.count_hits("a") == 2
    cache.put("a", "new", 2)
    assert cache.count_hits("a") == 0
    assert cache.count_hits("unknown") == 0


def test_a_default_is_returned_for_what_is_missing():
    assert fill(2, "a").get("z", 0, "none") == "none"


def test_none_is_a_value():
    cache = Cache(2)
    cache.put("a", None, 0)
    assert cache.get("a", 0, "default") is None
