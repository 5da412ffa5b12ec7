# SPDX-License-Identifier: Apache-2.0
import unittest

from intervals.model import make, overlap
from intervals.sets import merge, subtract, total


class IntervalTests(unittest.TestCase):
    def test_merge_sorts(self):
        assert merge([(5, 6), (1, 2)]) == [(1, 2), (5, 6)]

    def test_merge_joins_what_overlaps(self):
        assert merge([(1, 4), (2, 6)]) == [(1, 6)]

    def test_subtract_cuts_a_hole(self):
        assert subtract([(0, 10)], [(3, 5)]) == [(0, 3), (5, 10)]

    def test_total(self):
        assert total([(0, 3), (10, 12)]) == 5

    def test_overlap(self):
        assert overlap(make(0, 5), make(4, 9))


if __name__ == "__main__":
    unittest.main()
