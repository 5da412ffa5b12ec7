# SPDX-License-Identifier: Apache-2.0
import unittest

from router.pattern import match
from router.routes import Router


class RouterTests(unittest.TestCase):
    def test_fields(self):
        assert match("/users/{id:int}", "/users/7") == {"id": 7}

    def test_words(self):
        assert match("/users", "/files") is None

    def test_find(self):
        router = Router()
        router.add("get", "/users/{name}", "show_user")
        assert router.find("GET", "/users/amy?x=1") == ("show_user", {"name": "amy"}, {"x": ["1"]})


if __name__ == "__main__":
    unittest.main()
