# SPDX-License-Identifier: Apache-2.0
import unittest

from gridwalk.grid import Grid
from gridwalk.paths import count_cost, find_path, list_regions


class GridTests(unittest.TestCase):
    def test_find(self):
        assert Grid("..\n.S").find("S") == (1, 1)

    def test_path(self):
        assert find_path("S.E") == [(0, 0), (0, 1), (0, 2)]

    def test_cost(self):
        assert count_cost("S5E") == 6

    def test_regions(self):
        assert list_regions("..#.\n") == [2, 1]


if __name__ == "__main__":
    unittest.main()
