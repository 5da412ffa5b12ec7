# SPDX-License-Identifier: Apache-2.0
"""The company that every session begins with: mail, calendar, website visits, tasks and customers, always the same.

Made once per process from a seed, in memory. Only `random()` is drawn from, whose sequence Python promises to keep, so
the tables are the same everywhere. The words are in `words`.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from typing import TypeVar

from resources_servers.workplace_assistant import words

SEED = 20231130
EMAILS = 500
EVENTS = 300
VISITS = 1000
TASKS = 300
CUSTOMERS = 200
TODAY = date(2023, 11, 30)
LISTS = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS = ("Back end", "Front end", "Design")
STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")
SOURCES = ("direct", "referral", "search engine", "social media")

T = TypeVar("T")
Rows = tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Company:
    """The tables, and the addresses of the people who work there."""

    addresses: tuple[str, ...]
    emails: Rows
    events: Rows
    visits: Rows
    tasks: Rows
    customers: Rows


class Draw:
    """Choices from a seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return int(self._random.random() * bound)

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def some(self, choices: Sequence[T], count: int) -> list[T]:
        """Return `count` different ones, in random order."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def day(self, first: date, last: date) -> date:
        return first + timedelta(days=self.below((last - first).days + 1))

    def workday(self, first: date, last: date) -> date:
        day = self.day(first, last)
        return day if day.weekday() < 5 else self.workday(first, last)


@cache
def company() -> Company:
    """Return the company; the same object for all sessions."""
    addresses = tuple(f"{name.replace(' ', '.').lower()}@{words.DOMAIN}" for name in words.COLLEAGUES)
    return Company(
        addresses,
        emails=_emails(Draw(SEED), addresses),
        events=_events(Draw(SEED + 1), addresses),
        visits=_visits(Draw(SEED + 2)),
        tasks=_tasks(Draw(SEED + 3), addresses),
        customers=_customers(Draw(SEED + 4), addresses),
    )


def _id(number: int) -> str:
    return f"{number:08d}"


def _emails(draw: Draw, addresses: Sequence[str]) -> Rows:
    times = set[str]()
    while len(times) < EMAILS:
        day = draw.workday(date(2023, 10, 2), TODAY)
        times.add(f"{day} {draw.between(8, 18):02d}:{draw.below(60):02d}:{draw.below(60):02d}")
    rows = []
    for number, sent in enumerate(sorted(times)):
        address = draw.pick(addresses)
        project = draw.pick(words.PROJECTS)
        subject, body = draw.pick(words.EMAILS)
        box = "inbox" if draw.below(4) else "outbox"
        writer = _first_name(address) if box == "inbox" else words.OWNER
        rows.append(
            {
                "email_id": _id(number),
                "inbox/outbox": box,
                "sender/recipient": address,
                "subject": subject.format(project=project),
                "sent_datetime": sent,
                "body": body.format(project=project, name=writer, day=draw.pick(words.WEEKDAYS)),
            }
        )
    return tuple(rows)


def _first_name(address: str) -> str:
    return address.partition(".")[0].capitalize()


def _events(draw: Draw, addresses: Sequence[str]) -> Rows:
    """Meetings on working days between 9 and 18 o'clock that do not overlap."""
    taken = set[tuple[date, int]]()
    rows = list[dict[str, str]]()
    while len(rows) < EVENTS:
        day = draw.workday(date(2023, 9, 1), date(2024, 1, 31))
        half_hours = draw.pick((1, 1, 2, 2, 3, 4))
        first = draw.between(18, 36 - half_hours)
        slots = {(day, slot) for slot in range(first, first + half_hours)}
        if slots & taken:
            continue
        taken |= slots
        start = datetime(day.year, day.month, day.day, first // 2, 30 * (first % 2))
        rows.append(
            {
                "event_id": _id(len(rows)),
                "event_name": draw.pick(words.MEETINGS).format(project=draw.pick(words.PROJECTS)),
                "participant_email": draw.pick(addresses),
                "event_start": str(start),
                "duration": str(30 * half_hours),
            }
        )
    return tuple(rows)


def _visits(draw: Draw) -> Rows:
    days = sorted(draw.day(date(2023, 9, 1), date(2023, 11, 29)) for _ in range(VISITS))
    visitors = [_id(draw.between(10_000_000, 99_999_999)) for _ in range(VISITS - VISITS // 8)]
    rows = []
    for day in days:
        pages = draw.between(1, 20)
        rows.append(
            {
                "date_of_visit": str(day),
                "visitor_id": draw.pick(visitors),
                "page_views": str(pages),
                "session_duration_seconds": str(pages * draw.between(2, 40)),
                "traffic_source": draw.pick(SOURCES),
                "user_engaged": str(pages > 5 and draw.below(3) > 0),
            }
        )
    return tuple(rows)


def _tasks(draw: Draw, addresses: Sequence[str]) -> Rows:
    names = [
        (board, f"{verb} {thing}")
        for board, (verbs, things) in words.TASKS.items()
        for verb in verbs
        for thing in things
    ]
    rows = []
    for number, (board, name) in enumerate(draw.some(names, TASKS)):
        due = draw.workday(date(2023, 11, 1), date(2023, 12, 29))
        rows.append(
            {
                "task_id": _id(number),
                "task_name": name,
                "assigned_to_email": draw.pick(addresses),
                "list_name": draw.pick(LISTS),
                "due_date": str(due),
                "board": board,
            }
        )
    return tuple(rows)


def _customers(draw: Draw, addresses: Sequence[str]) -> Rows:
    names = [f"{first} {last}" for first in words.FIRST_NAMES for last in words.LAST_NAMES]
    rows = []
    for number, name in enumerate(draw.some(names, CUSTOMERS)):
        last_contact = draw.workday(date(2023, 9, 1), date(2023, 11, 29))
        firm = draw.pick(words.FIRMS)
        rows.append(
            {
                "customer_id": _id(number),
                "assigned_to_email": draw.pick(addresses),
                "customer_name": name,
                "customer_email": f"{name.replace(' ', '.').lower()}@{firm}.example",
                "customer_phone": f"555-{draw.below(1000):03d}-{draw.below(10_000):04d}",
                "last_contact_date": str(last_contact),
                "product_interest": draw.pick(PRODUCTS),
                "status": draw.pick(STATUSES),
                "follow_up_by": str(draw.workday(date(2023, 12, 1), date(2024, 1, 31))),
                "notes": f"{last_contact}: {draw.pick(words.NOTES)}",
            }
        )
    return tuple(rows)
