# SPDX-License-Identifier: Apache-2.0
"""What a session can change: five tables that all sessions share until one of them writes.

Tables are tuples of rows that nobody alters. A write makes a new tuple for its own session, so a session begins for
nothing, and two end states are compared by looking only at the rows that differ. How the tables begin is in `company`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from resources_servers.workplace_assistant.company import company

Row = Mapping[str, str]
Rows = tuple[Row, ...]

NOW = "2023-11-30 23:59:00"
CASE_MATTERS = frozenset({"status", "list_name", "board"})
ID_DIGITS = 8


@dataclass(slots=True)
class World:
    """The state of one session."""

    emails: Rows = field(default_factory=lambda: company().emails)
    events: Rows = field(default_factory=lambda: company().events)
    plots: Rows = ()
    tasks: Rows = field(default_factory=lambda: company().tasks)
    customers: Rows = field(default_factory=lambda: company().customers)

    def is_like(self, other: "World") -> bool:
        """Whether both hold the same rows in the same order. Case counts only where the values are fixed names."""
        return all(_alike(getattr(self, table), getattr(other, table)) for table in World.__slots__)


def position(rows: Rows, key: str, value: str) -> int | None:
    """Where the row with this id is."""
    return next((place for place, row in enumerate(rows) if row[key] == value), None)


def without(rows: Rows, place: int) -> Rows:
    """`rows` with one less."""
    return rows[:place] + rows[place + 1 :]


def changed(rows: Rows, place: int, column: str, value: str) -> Rows:
    """`rows` with another value in one of them."""
    return (*rows[:place], {**rows[place], column: value}, *rows[place + 1 :])


def next_id(rows: Rows, key: str) -> str:
    """The highest id and one more."""
    # Ids are equally long, so the highest text is the highest number.
    return str(int(max((row[key] for row in rows), default="-1")) + 1).zfill(ID_DIGITS)


def _alike(ours: Rows, theirs: Rows) -> bool:
    if ours is theirs:
        return True
    if len(ours) != len(theirs):
        return False
    return all(one is other or _folded(one) == _folded(other) for one, other in zip(ours, theirs, strict=True))


def _folded(row: Row) -> dict[str, str]:
    return {column: value if column in CASE_MATTERS else value.casefold() for column, value in row.items()}
