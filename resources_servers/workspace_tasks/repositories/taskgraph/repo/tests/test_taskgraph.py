# SPDX-License-Identifier: Apache-2.0
import unittest

from taskgraph.order import find_needed, sort_tasks
from taskgraph.plan import count_hours, plan_starts

HOUSE = {"walls": ["floor"], "roof": ["walls"], "garden": []}


class TaskTests(unittest.TestCase):
    def test_order(self):
        assert sort_tasks(HOUSE) == ["floor", "garden", "walls", "roof"]

    def test_needed(self):
        assert find_needed(HOUSE, "roof") == ["floor", "walls"]

    def test_starts(self):
        assert plan_starts(HOUSE, {"floor": 2, "walls": 3})["roof"] == 5

    def test_hours(self):
        assert count_hours(HOUSE, {"floor": 2, "walls": 3, "roof": 1, "garden": 4}) == 6


if __name__ == "__main__":
    unittest.main()
