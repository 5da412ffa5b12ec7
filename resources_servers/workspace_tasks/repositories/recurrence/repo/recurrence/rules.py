# SPDX-License-Identifier: Apache-2.0
"""Rules, and the dates that they stand for."""

from datetime import date, timedelta

from recurrence.months import add_months, find_weekday


def list_daily(start: date, end: date, every: int = 1) -> list[date]:
    """Return every `every`-th day from `start` to `end`, both included."""
    if every < 1:
        raise ValueError("a rule must move forward")
    return [start + timedelta(days=days) for days in range(0, (end - start).days + 1, every)]


def list_weekly(start: date, end: date, weekdays: list[int], every: int = 1) -> list[date]:
    """Return the given weekdays (0 is Monday) of every `every`-th week; weeks begin on Monday."""
    monday = start - timedelta(days=start.weekday())
    found = []
    for day in list_daily(start, end):
        if (day - monday).days // 7 % every == 0 and day.weekday() in weekdays:
            found.append(day)
    return found


def list_monthly(start: date, end: date, every: int = 1) -> list[date]:
    """Return the day of `start` in every `every`-th month; in a shorter month, its last day."""
    found, count = [], 0
    while (day := add_months(start, count)) <= end:
        found.append(day)
        count += every
    return found


def list_monthly_weekday(start: date, end: date, weekday: int, number: int) -> list[date]:
    """Return the `number`-th such weekday of each month that has one."""
    found, first = [], start.replace(day=1)
    while first <= end:
        day = find_weekday(first.year, first.month, weekday, number)
        if day is not None and start <= day <= end:
            found.append(day)
        first = add_months(first, 1)
    return found


def skip(days: list[date], holidays: list[date]) -> list[date]:
    """Return the days, those on holidays or weekends moved to the next working day, each once and in order."""
    moved = set()
    for day in days:
        while day in holidays or day.weekday() >= 5:
            day += timedelta(days=1)
        moved.add(day)
    return sorted(moved)
