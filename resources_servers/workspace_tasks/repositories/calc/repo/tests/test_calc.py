# SPDX-License-Identifier: Apache-2.0
import unittest

from calc.evaluate import evaluate
from calc.lexer import split


class CalcTests(unittest.TestCase):
    def test_split(self):
        assert split("2*(x1 + 3.5)") == ["2", "*", "(", "x1", "+", "3.5", ")"]

    def test_products_before_sums(self):
        assert evaluate("1 + 2 * 3") == 7

    def test_names(self):
        assert evaluate("x + 1", {"x": 2}) == 3

    def test_parentheses(self):
        assert evaluate("2 * (1 + 2)") == 6


if __name__ == "__main__":
    unittest.main()
