# SPDX-License-Identifier: Apache-2.0
"""Months and their days."""

from datetime import date, timedelta


def count_days(year: int, month: int) -> int:
    """Return how many days a month has."""
    following = date(year + month // 12, month % 12 + 1, 1)
    return (following - timedelta(days=1)).day


def add_months(day: date, months: int) -> date:
    """Return the same day of a later month, or its last day if it is shorter."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, count_days(year, month + 1)))


def find_weekday(year: int, month: int, weekday: int, number: int) -> date | None:
    """Return the `number`-th such weekday (0 is Monday) of a month, from its end if negative; None if there is none."""
    days = [day for day in range(1, count_days(year, month) + 1) if date(year, month, day).weekday() == weekday]
    index = number - 1 if number > 0 else number
    return date(year, month, days[index]) if -len(days) <= index < len(days) else None
