# SPDX-License-Identifier: Apache-2.0
"""Which rows pass, and in which order: plain functions over the columns of a file. Texts are searched elsewhere."""

import json
import math
import os
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from nemo_gym._reports.columns import Columns, Names
from nemo_gym._reports.rollout import Preview
from nemo_gym._reports.row_facts import CUT_OFF, FAILED, SCORED, TOOL_ERROR

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


_CHUNK_BYTES = 1 << 20


class TextSearch:
    """The rows of one file that hold a text, as far as the file was searched."""

    def __init__(self, text: str) -> None:
        # A character beyond ASCII may be written as itself or as an escape, depending on who wrote the file.
        written = {orjson.dumps(text)[1:-1], json.dumps(text)[1:-1].encode()}
        self._needles = [needle.lower() for needle in sorted(written)]
        self.hits = array("I")
        """In file order."""
        self.n_searched = 0

    def advance(self, path: str | os.PathLike[str], columns: Columns, n_rows: int, budget_s: float) -> None:
        """Search on, up to row `n_rows`, until the time is used up; at least one chunk is searched."""
        deadline = time.monotonic() + budget_s
        with open(path, "rb", buffering=0) as file:
            while self.n_searched < n_rows:
                self._search_chunk(file.fileno(), columns, n_rows)
                if time.monotonic() >= deadline:
                    break

    def _search_chunk(self, fd: int, columns: Columns, n_rows: int) -> None:
        first = self.n_searched
        start = columns.offset[first]
        stop = max(bisect_right(columns.offset, start + _CHUNK_BYTES, first, n_rows) - 1, first + 1)
        chunk = os.pread(fd, columns.offset[stop - 1] + columns.size[stop - 1] - start, start).lower()
        found: set[int] = set()
        for needle in self._needles:
            at = chunk.find(needle)
            while at >= 0:
                row = bisect_right(columns.offset, start + at, first, stop) - 1
                end = columns.offset[row] + columns.size[row] - start
                # A match between two rows is one in a broken line, or one that begins in a row and ends beyond it.
                if at + len(needle) <= end:
                    found.add(row)
                at = chunk.find(needle, max(end, at + 1))
        self.hits.extend(sorted(found))
        self.n_searched = stop


GROUP_SORTS = ("pass_rate", "task", "reward", "rollouts", "failed")
PASS_REWARD = 1.0
"""A rollout passes from this reward on."""


@dataclass(frozen=True)
class TaskGroup:
    """One task, as one agent played it."""

    task: int
    task_label: str
    agent: str | None
    n_rollouts: int
    n_scored: int
    n_failed: int
    mean_reward: float | None
    min_reward: float | None
    max_reward: float | None
    pass_rate: float | None
    """The share of the scored rollouts with a reward of at least 1."""
    rows: tuple[int, ...]
    """By rollout index."""
    preview: Preview = field(default_factory=Preview)


class Groups:
    """Tasks in order; the rows of a group are a stretch of one array."""

    def __init__(self, rows: "array[int]", starts: "array[int]", order: Sequence[int]) -> None:
        self._rows, self._starts, self._order = rows, starts, order

    def __len__(self) -> int:
        return len(self._order)

    def rows_of(self, place: int) -> "array[int]":
        """The rows of the group at a place in the order."""
        number = self._order[place]
        return self._rows[self._starts[number] : self._starts[number + 1]]

    def group(self, columns: Columns, place: int) -> TaskGroup:
        return describe_group(columns, self.rows_of(place))


def group_rows(columns: Columns, rows: Sequence[int], sort: str = "task", descending: bool = False) -> Groups:
    """Put the rows of a task and an agent together, and the tasks in order."""
    if sort not in GROUP_SORTS:
        raise ValueError(f"tasks cannot be sorted by {sort!r}; known: {', '.join(GROUP_SORTS)}")
    task, agent, rollout = columns.task, columns.agent, columns.rollout
    together = array("I", sorted(rows, key=lambda row: (task[row], agent[row], rollout[row])))
    starts, before = array("I"), None
    for place, row in enumerate(together):
        if (key := (task[row], agent[row])) != before:
            starts.append(place)
            before = key
    starts.append(len(together))
    return Groups(together, starts, _order(columns, together, starts, sort, descending))


def describe_group(columns: Columns, rows: Sequence[int]) -> TaskGroup:
    """The numbers of the rows of one task."""
    first = rows[0]
    rewards = scored_rewards(columns, rows)
    return TaskGroup(
        task=columns.task[first],
        task_label=columns.task_label(first),
        agent=columns.agents[columns.agent[first]] or None,
        n_rollouts=len(rows),
        n_scored=len(rewards),
        n_failed=sum(1 for row in rows if columns.flags[row] & FAILED),
        mean_reward=math.fsum(rewards) / len(rewards) if rewards else None,
        min_reward=min(rewards, default=None),
        max_reward=max(rewards, default=None),
        pass_rate=sum(reward >= PASS_REWARD for reward in rewards) / len(rewards) if rewards else None,
        rows=tuple(rows),
    )


def scored_rewards(columns: Columns, rows: Sequence[int]) -> list[float]:
    """The rewards that count: not those of failures."""
    return [columns.reward[row] for row in rows if columns.flags[row] & SCORED]


def _order(columns: Columns, rows: "array[int]", starts: "array[int]", sort: str, descending: bool) -> Sequence[int]:
    numbers = range(len(starts) - 1)
    if sort == "task":
        return numbers[::-1] if descending else numbers
    values = [_value(columns, rows[starts[n] : starts[n + 1]], sort) for n in numbers]
    known = sorted((n for n in numbers if values[n]), key=lambda n: values[n], reverse=descending)
    return array("I", [*known, *(n for n in numbers if not values[n])])


def _value(columns: Columns, rows: "array[int]", sort: str) -> tuple[float, ...]:
    """What a task is ordered by, the next for equal ones; empty where nothing is known."""
    if sort == "rollouts":
        return (len(rows),)
    if sort == "failed":
        return (sum(1 for row in rows if columns.flags[row] & FAILED),)
    rewards = scored_rewards(columns, rows)
    if not rewards:
        return ()
    mean = math.fsum(rewards) / len(rewards)
    return (sum(reward >= PASS_REWARD for reward in rewards) / len(rewards), mean) if sort == "pass_rate" else (mean,)
