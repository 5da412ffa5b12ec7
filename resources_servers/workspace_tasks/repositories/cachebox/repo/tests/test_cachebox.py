# SPDX-License-Identifier: Apache-2.0
import unittest

from cachebox.cache import Cache


class CacheTests(unittest.TestCase):
    def test_put_and_get(self):
        cache = Cache(2)
        cache.put("a", 1, now=0)
        assert cache.get("a", now=1) == 1

    def test_the_oldest_goes(self):
        cache = Cache(2)
        for key in "abc":
            cache.put(key, key, now=0)
        assert cache.list_keys(now=0) == ["b", "c"]

    def test_values_expire(self):
        cache = Cache(2, ttl=10)
        cache.put("a", 1, now=0)
        assert cache.get("a", now=11) is None


if __name__ == "__main__":
    unittest.main()
