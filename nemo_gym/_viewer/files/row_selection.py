# SPDX-License-Identifier: Apache-2.0
"""Select rows over the columns of a file: filter, search for a text, sort, and group the rollouts of each task.

Rows are numbers in file order, in ranges and arrays, so that any number of them takes little memory.
"""

import json
import math
import os
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import orjson

from nemo_gym._results.metrics.describe import mean
from nemo_gym._results.metrics.rollout_metrics import PASS_REWARD
from nemo_gym._viewer.files.columns import Columns
from nemo_gym._viewer.files.one_rollout import Preview
from nemo_gym._viewer.files.row_facts import CUT_OFF, FAILED, SCORED, TOOL_ERROR

T = TypeVar("T")

SORTS = (
    *("file", "task", "rollout", "reward", "agent", "finish_reason", "tool_calls"),
    *("input_tokens", "output_tokens", "length", "failure"),
)
GROUP_SORTS = ("pass_rate", "task", "reward", "rollouts", "failed")
_CHUNK_BYTES = 1 << 20


def pick_evenly(items: Sequence[T], most: int) -> list[T]:
    """Pick at most `most` items, evenly spaced, including both ends."""
    if len(items) <= most or most < 2:
        return list(items[: max(most, 0)])
    return [items[number * (len(items) - 1) // (most - 1)] for number in range(most)]


def rate_passes(rewards: Sequence[float], threshold: float = PASS_REWARD) -> float:
    """Return the share of rewards that reach `threshold`."""
    return sum([reward >= threshold for reward in rewards]) / len(rewards)


# --- filter and sort --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filters:
    """Which rows to show; all conditions must hold."""

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
    """Only rollouts that were cut off."""

    @property
    def is_empty(self) -> bool:
        return self == Filters()


def filter_rows(columns: Columns, n_rows: int, filters: Filters) -> Sequence[int]:
    """Return the rows that pass, in file order; the text is ignored."""
    rows: Sequence[int] = range(n_rows)
    if filters.task is not None:
        task = columns.task
        rows = [row for row in rows if task[row] == filters.task]
    required = {"all": 0, "scored": SCORED, "failed": FAILED}[filters.outcome]
    if filters.tool_error:
        required |= TOOL_ERROR
    if filters.cut_off:
        required |= CUT_OFF
    if required:
        flags = columns.flags
        rows = [row for row in rows if flags[row] & required == required]
    reward = columns.reward
    if filters.reward_min is not None:
        rows = [row for row in rows if reward[row] >= filters.reward_min]
    if filters.reward_max is not None:
        rows = [row for row in rows if reward[row] <= filters.reward_max]
    if filters.agents:
        agents = {columns.agents.find(name) for name in filters.agents}
        rows = [row for row in rows if columns.agent[row] in agents]
    if filters.finish_reason is not None:
        finish = columns.finishes.find(filters.finish_reason)
        rows = [row for row in rows if columns.finish[row] == finish]
    if filters.failure_kind is not None:
        failure = columns.failures.find(filters.failure_kind)
        rows = [row for row in rows if columns.failure[row] == failure]
    if filters.tool is not None:
        tools = columns.tools
        having = {number for number, one in enumerate(columns.toolsets) if filters.tool in one}
        rows = [row for row in rows if tools[row] in having]
    return rows if isinstance(rows, range) else array("I", rows)


def intersect_rows(rows: Sequence[int], hits: "array[int]", n_rows: int) -> Sequence[int]:
    """Return the rows that are also among the hits, in file order."""
    if isinstance(rows, range):
        return array("I", hits)
    passed = bytearray(n_rows)
    for row in rows:
        passed[row] = 1
    return array("I", [row for row in hits if row < n_rows and passed[row]])


def sort_rows(columns: Columns, rows: Sequence[int], sort: str, descending: bool) -> Sequence[int]:
    """Return the rows ordered by one column; rows without a value come last either way."""
    if sort == "file" and descending:
        return rows[::-1]
    if sort == "file":
        return rows
    key, missing = _choose_sort_key(columns, sort)
    ordered = array("I", sorted((row for row in rows if key(row) != missing), key=key, reverse=descending))
    if len(ordered) < len(rows):
        ordered.extend(row for row in rows if key(row) == missing)
    return ordered


def _choose_sort_key(columns: Columns, sort: str) -> tuple[Callable[[int], Any], object]:
    """Return what to order a row by, and the value that means none."""
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
        # NaN does not order, so it becomes None.
        return lambda row: None if math.isnan(values[row]) else values[row], None
    if sort in SORTS:
        return getattr(columns, sort).__getitem__, -1 if sort.endswith("_tokens") else None
    raise ValueError(f"rows cannot be sorted by {sort!r}; known: {', '.join((*SORTS, *columns.fields))}")


# --- search -----------------------------------------------------------------------------------------------------------


class TextSearch:
    """Finds the rows of a file that hold a text, one slice of time at a time: a gigabyte never blocks a page.

    Letters of the Latin alphabet match in either case. The whole line is searched, including field names.
    """

    def __init__(self, text: str) -> None:
        # A character beyond ASCII may be written as itself or as an escape, depending on who wrote the file.
        written = {orjson.dumps(text)[1:-1], json.dumps(text)[1:-1].encode()}
        self._needles = [needle.lower() for needle in sorted(written)]
        self.hits = array("I")
        """In file order."""
        self.n_searched = 0

    def advance(self, path: str | os.PathLike[str], columns: Columns, n_rows: int, budget_s: float) -> None:
        """Continue the search up to row `n_rows` until the time is used up; search at least one chunk."""
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
                # A match between two rows is in a broken line, or begins in a row and ends beyond it.
                if at + len(needle) <= end:
                    found.add(row)
                at = chunk.find(needle, max(end, at + 1))
        self.hits.extend(sorted(found))
        self.n_searched = stop


# --- group ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskGroup:
    """One task, as one agent ran it."""

    task: int
    task_label: str
    agent: str | None
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
    """Tasks in order; the rows of a group are a slice of one array."""

    def __init__(self, rows: "array[int]", starts: "array[int]") -> None:
        self._rows = rows
        self._starts = starts
        self.order: Sequence[int] = range(len(starts) - 1)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, position: int) -> "array[int]":
        """Return the rows of the group at a position."""
        number = self.order[position]
        return self._rows[self._starts[number] : self._starts[number + 1]]

    def __iter__(self) -> Iterator["array[int]"]:
        return (self[position] for position in range(len(self)))


def group_rows(columns: Columns, rows: Sequence[int], sort: str = "task", descending: bool = False) -> Groups:
    """Group the rows by task and agent, and order the tasks."""
    if sort not in GROUP_SORTS:
        raise ValueError(f"tasks cannot be sorted by {sort!r}; known: {', '.join(GROUP_SORTS)}")
    task = columns.task
    agent = columns.agent
    rollout = columns.rollout
    together = array("I", sorted(rows, key=lambda row: (task[row], agent[row], rollout[row])))
    starts = array("I")
    before = None
    for position, row in enumerate(together):
        if (key := (task[row], agent[row])) != before:
            starts.append(position)
            before = key
    starts.append(len(together))
    groups = Groups(together, starts)
    if sort == "task" and descending:
        groups.order = groups.order[::-1]
    elif sort != "task":
        values = [_measure_group(columns, groups[number], sort) for number in groups.order]
        known = sorted((n for n in groups.order if values[n]), key=lambda n: values[n], reverse=descending)
        groups.order = array("I", [*known, *(n for n in groups.order if not values[n])])
    return groups


def describe_group(columns: Columns, rows: Sequence[int], preview: Preview) -> TaskGroup:
    """Return the statistics of one task's rows."""
    first = rows[0]
    rewards = list_scored_rewards(columns, rows)
    return TaskGroup(
        task=columns.task[first],
        task_label=columns.label_task(first),
        agent=columns.agents[columns.agent[first]] or None,
        n_failed=sum(1 for row in rows if columns.flags[row] & FAILED),
        mean_reward=mean(rewards) if rewards else None,
        min_reward=min(rewards, default=None),
        max_reward=max(rewards, default=None),
        pass_rate=rate_passes(rewards) if rewards else None,
        rows=tuple(rows),
        preview=preview,
    )


def list_scored_rewards(columns: Columns, rows: Sequence[int]) -> list[float]:
    """Return the rewards that count, leaving out failures."""
    return [columns.reward[row] for row in rows if columns.flags[row] & SCORED]


def _measure_group(columns: Columns, rows: Sequence[int], sort: str) -> tuple[float, ...]:
    """Return what a task is ordered by, then the tie-breakers; empty if nothing is known."""
    if sort == "rollouts":
        return (len(rows),)
    if sort == "failed":
        return (sum(1 for row in rows if columns.flags[row] & FAILED),)
    rewards = list_scored_rewards(columns, rows)
    if not rewards:
        return ()
    if sort == "pass_rate":
        return rate_passes(rewards), mean(rewards)
    return (mean(rewards),)
