# SPDX-License-Identifier: Apache-2.0
import unittest
from datetime import date

from recurrence.months import add_months, count_days
from recurrence.rules import list_daily, list_weekly


class RecurrenceTests(unittest.TestCase):
    def test_days_of_months(self):
        assert [count_days(2023, month) for month in (1, 2, 4)] == [31, 28, 30]

    def test_add_months(self):
        assert add_months(date(2024, 1, 15), 2) == date(2024, 3, 15)

    def test_daily(self):
        assert list_daily(date(2024, 1, 1), date(2024, 1, 3), 2) == [date(2024, 1, 1), date(2024, 1, 3)]

    def test_weekly(self):
        assert list_weekly(date(2024, 1, 1), date(2024, 1, 9), [0]) == [date(2024, 1, 1), date(2024, 1, 8)]


if __name__ == "__main__":
    unittest.main()
