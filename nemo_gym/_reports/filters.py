# SPDX-License-Identifier: Apache-2.0
"""Which rows pass, and in which order: plain functions over the columns of a file. Texts are searched elsewhere."""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nemo_gym._reports.columns import Columns, Names
from nemo_gym._reports.facts import CUT_OFF, FAILED, SCORED, TOOL_ERROR

SORTS = (
    "file",
    "task",
    "rollout",
    "reward",
    "agent",
    "finish_reason",
    "tool_calls",
    "input_tokens",
    "output_tokens",
    "length",
    "failure",
)


@dataclass(frozen=True)
class Filters:
    """Which rows to show; all that is given must hold."""

    text: str = ""
    reward_min: float | None = None
    reward_max: float | None = None
    agents: tuple[str, ...] = ()
    task: int | None = None
    outcome: Literal["all", "scored", "failed"] = "all"
    tool: str | None = None
    finish_reason: str | None = None
    failure_kind: str | None = None
    tool_error: bool = False
    """Only rollouts in which a tool crashed."""
    cut_off: bool = False
    """Only rollouts that were ended before they were done."""

    @property
    def is_empty(self) -> bool:
        return self == Filters()


def matching(columns: Columns, n_rows: int, filters: Filters) -> Sequence[int]:
    """The rows that pass, in file order; the text is not looked at."""
    rows: Sequence[int] = range(n_rows)
    if filters.task is not None:
        task = columns.task
        rows = [row for row in rows if task[row] == filters.task]
    if filters.outcome != "all":
        flags, wanted = columns.flags, SCORED if filters.outcome == "scored" else FAILED
        rows = [row for row in rows if flags[row] & wanted]
    if required := (TOOL_ERROR if filters.tool_error else 0) | (CUT_OFF if filters.cut_off else 0):
        flags = columns.flags
        rows = [row for row in rows if flags[row] & required == required]
    if filters.reward_min is not None or filters.reward_max is not None:
        reward = columns.reward
        low = -math.inf if filters.reward_min is None else filters.reward_min
        high = math.inf if filters.reward_max is None else filters.reward_max
        rows = [row for row in rows if low <= reward[row] <= high]
    for column, numbers in _named(columns, filters):
        rows = [row for row in rows if column[row] in numbers]
    return rows if isinstance(rows, range) else array("I", rows)


def _named(columns: Columns, filters: Filters) -> "list[tuple[array[int], set[int]]]":
    """The columns of names that are asked for, each with the numbers that will do."""
    asked: list[tuple[array[int], set[int]]] = []
    if filters.agents:
        asked.append((columns.agent, _numbers(columns.agents, filters.agents)))
    if filters.finish_reason is not None:
        asked.append((columns.finish, _numbers(columns.finishes, (filters.finish_reason,))))
    if filters.failure_kind is not None:
        asked.append((columns.failure, _numbers(columns.failures, (filters.failure_kind,))))
    if filters.tool is not None:
        having = {number for number, tools in enumerate(columns.toolsets) if filters.tool in tools}
        asked.append((columns.tools, having))
    return asked


def _numbers(names: Names[str], wanted: Sequence[str]) -> set[int]:
    return {number for name in wanted if (number := names.get(name)) is not None}


def both(rows: Sequence[int], hits: "array[int]", n_rows: int) -> Sequence[int]:
    """The rows that are also among the hits, in file order."""
    if isinstance(rows, range):
        return array("I", hits)
    passed = bytearray(n_rows)
    for row in rows:
        passed[row] = 1
    return array("I", [row for row in hits if row < n_rows and passed[row]])


def ordered(columns: Columns, rows: Sequence[int], sort: str, descending: bool) -> Sequence[int]:
    """The rows by one column; those that have no value come last either way."""
    if sort == "file":
        return rows[::-1] if descending else rows
    key, missing = _sort_key(columns, sort)
    known = sorted((row for row in rows if key(row) != missing), key=key, reverse=descending)
    absent = [row for row in rows if key(row) == missing] if len(known) < len(rows) else []
    return array("I", [*known, *absent])


def _sort_key(columns: Columns, sort: str) -> tuple[Callable[[int], Any], object]:
    """What to order a row by, and the value that stands for none."""
    if sort in ("agent", "finish_reason", "failure"):
        numbers, names = {
            "agent": (columns.agent, columns.agents),
            "finish_reason": (columns.finish, columns.finishes),
            "failure": (columns.failure, columns.failures),
        }[sort]
        known = list(names)
        return lambda row: known[numbers[row]], ""
    if sort in ("reward", *columns.fields):
        values = columns.reward if sort == "reward" else columns.fields[sort]
        # NaN is neither smaller nor larger than anything: as None it is told apart.
        return lambda row: None if math.isnan(values[row]) else values[row], None
    if sort in SORTS:
        return getattr(columns, sort).__getitem__, -1 if sort.endswith("_tokens") else None
    raise ValueError(f"rows cannot be sorted by {sort!r}; known: {', '.join((*SORTS, *columns.fields))}")
