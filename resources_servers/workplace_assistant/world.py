# SPDX-License-Identifier: Apache-2.0
"""What a session can change: five tables that all sessions share until one of them writes.

Tables are tuples of rows that nobody alters. A write makes a new tuple for its own session, so a session begins for
nothing, and two end states are compared by looking only at the rows that differ. How the tables begin is in `company`.
"""

from collections.abc import Mapping

from resources_servers.workplace_assistant.company import Company, company

Row = Mapping[str, str]
Rows = tuple[Row, ...]

NOW = "2023-11-30 23:59:00"
CASE_MATTERS = frozenset({"status", "list_name", "board"})


TABLES = ("emails", "events", "plots", "tasks", "customers")
"""What a session can change, and what decides the reward."""


class World:
    """The state of one session in the office of a company; in our own if none is given."""

    def __init__(self, office: Company | None = None) -> None:
        self.company = office or company()
        self.emails: Rows = self.company.emails
        self.events: Rows = self.company.events
        self.plots: Rows = ()
        self.tasks: Rows = self.company.tasks
        self.customers: Rows = self.company.customers

    def is_like(self, other: "World") -> bool:
        """Return whether both hold the same rows in order. Case counts only where the values are fixed names."""
        return all(_are_alike(getattr(self, table), getattr(other, table)) for table in TABLES)


def find_position(rows: Rows, key: str, value: str) -> int | None:
    """Return where the row with this id is."""
    return next((place for place, row in enumerate(rows) if row[key] == value), None)


def remove_row(rows: Rows, place: int) -> Rows:
    """Return `rows` with one less."""
    return rows[:place] + rows[place + 1 :]


def change_row(rows: Rows, place: int, column: str, value: str) -> Rows:
    """Return `rows` with another value in one of them."""
    return (*rows[:place], {**rows[place], column: value}, *rows[place + 1 :])


def _are_alike(ours: Rows, theirs: Rows) -> bool:
    if ours is theirs:
        return True
    if len(ours) != len(theirs):
        return False
    return all(one is other or _fold_case(one) == _fold_case(other) for one, other in zip(ours, theirs, strict=True))


def _fold_case(row: Row) -> dict[str, str]:
    return {column: value if column in CASE_MATTERS else value.lower() for column, value in row.items()}
