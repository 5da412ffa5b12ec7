# SPDX-License-Identifier: Apache-2.0
import unittest

from typeset.layout import justify, make_columns, wrap


class LayoutTests(unittest.TestCase):
    def test_wrap(self):
        assert wrap("one two three", 7) == ["one two", "three"]

    def test_justify(self):
        assert justify("a b", 5) == "a   b"

    def test_columns(self):
        assert make_columns([["a", "b"], ["long", "c"]]) == ["a     b", "long  c"]


if __name__ == "__main__":
    unittest.main()
