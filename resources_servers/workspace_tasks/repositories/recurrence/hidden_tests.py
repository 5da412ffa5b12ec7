# SPDX-License-Identifier: Apache-2.0
from datetime import date

from checks import error_of
from recurrence.months import add_months, count_days, find_weekday
from recurrence.rules import list_daily, list_monthly, list_monthly_weekday, list_weekly, skip


def test_leap_years():
    assert [count_days(year, 2) for year in (1900, 2000, 2023, 2024)] == [28, 29, 28, 29]


def test_december_has_days_too():
    assert count_days(2023, 12) == 31


def test_months_over_the_end_of_a_year():
    assert add_months(date(2023, 12, 5), 1) == date(2024, 1, 5)
    assert add_months(date(2023, 11, 5), 14) == date(2025, 1, 5)
    assert add_months(date(2024, 1, 5), -1) == date(2023, 12, 5)
    assert add_months(date(2023, 6, 5), 6) == date(2023, 12, 5)


def test_a_shorter_month_gives_its_last_day():
    assert add_months(date(2024, 1, 31), 1) == date(2024, 2, 29)
    assert add_months(date(2023, 8, 31), 1) == date(2023, 9, 30)


def test_weekdays_of_a_month():
    assert find_weekday(2024, 2, 3, 1) == date(2024, 2, 1)
    assert find_weekday(2024, 2, 3, 5) == date(2024, 2, 29)
    assert find_weekday(2024, 2, 0, 5) is None
    assert find_weekday(2024, 2, 3, -1) == date(2024, 2, 29)
    assert find_weekday(2024, 2, 0, -4) == date(2024, 2, 5)
    assert find_weekday(2024, 2, 0, -5) is None


def test_both_ends_are_included():
    assert list_daily(date(2024, 2, 28), date(2024, 3, 1)) == [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1)]
    assert list_daily(date(2024, 2, 2), date(2024, 2, 1)) == []
    assert error_of(list_daily, date(2024, 2, 2), date(2024, 2, 3), 0) == "ValueError"


def test_every_second_week_counts_from_monday():
    days = list_weekly(date(2024, 1, 3), date(2024, 1, 20), [0, 2], 2)
    assert days == [date(2024, 1, 3), date(2024, 1, 15), date(2024, 1, 17)]


def test_monthly_comes_back_to_the_day_after_a_short_month():
    days = list_monthly(date(2024, 1, 31), date(2024, 4, 30))
    assert days == [date(2024, 1, 31), date(2024, 2, 29), date(2024, 3, 31), date(2024, 4, 30)]


def test_every_third_month():
    assert list_monthly(date(2023, 11, 30), date(2024, 5, 30), 3) == [
        date(2023, 11, 30),
        date(2024, 2, 29),
        date(2024, 5, 30),
    ]


def test_monthly_weekdays_stay_between_start_and_end():
    days = list_monthly_weekday(date(2024, 1, 10), date(2024, 3, 4), 0, 1)
    assert days == [date(2024, 2, 5), date(2024, 3, 4)]


def test_months_without_a_fifth_weekday_are_left_out():
    assert list_monthly_weekday(date(2024, 1, 1), date(2024, 5, 31), 4, 5) == [date(2024, 3, 29), date(2024, 5, 31)]


def test_weekends_and_holidays_move_to_the_next_working_day():
    assert skip([date(2024, 6, 1)], []) == [date(2024, 6, 3)]
    assert skip([date(2024, 6, 1)], [date(2024, 6, 3)]) == [date(2024, 6, 4)]
    assert skip([date(2024, 5, 31)], [date(2024, 5, 31)]) == [date(2024, 6, 3)]


def test_two_days_that_move_to_the_same_one_count_once():
    assert skip([date(2024, 6, 2), date(2024, 6, 1), date(2024, 6, 3)], []) == [date(2024, 6, 3)]
