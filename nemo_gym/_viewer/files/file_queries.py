# SPDX-License-Identifier: Apache-2.0
"""Answer the viewer's questions about a file: results, pages, tasks, neighbors, and the available filters.

Answers come within a time budget, from what is indexed so far; asking again continues. Nothing is rendered here.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from nemo_gym._viewer.files.file_index import Index
from nemo_gym._viewer.files.one_rollout import Preview, preview_row
from nemo_gym._viewer.files.row_facts import CUT_OFF, TOOL_ERROR, RowOutcome, read_outcome
from nemo_gym._viewer.files.row_selection import (
    Filters,
    Groups,
    TaskGroup,
    TextSearch,
    describe_group,
    filter_rows,
    group_rows,
    intersect_rows,
    sort_rows,
)
from nemo_gym._viewer.files.run_companions import RunFiles

S = TypeVar("S", Sequence[int], Groups)
T = TypeVar("T")

PAGE_SIZE = 25
BUDGET_S = 0.25
_MOST_REMEMBERED = 16
_FIELDS_FROM = 5
"""The available fields are taken from this many rows at the start."""


@dataclass(frozen=True)
class Results(Generic[S]):
    """What passed the filters, in order: rows, or the rows of each task together."""

    items: S
    complete: bool
    """Whether every indexed row was checked."""
    searched: float
    """The share of the indexed rows that the text search has seen; 1 without one."""

    @property
    def total(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class RowSummary:
    """A row as a table shows it."""

    row: int
    task: int
    task_label: str
    rollout: int
    agent: str | None
    reward: float | None
    outcome: RowOutcome
    failure_kind: str | None
    finish_reason: str | None
    tool_calls: int
    tools: tuple[str, ...]
    input_tokens: int | None
    output_tokens: int | None
    length: int
    has_tool_error: bool
    is_cut_off: bool
    fields: dict[str, float]
    preview: Preview = field(default_factory=Preview)


@dataclass(frozen=True)
class ResultPage(Generic[T]):
    """A page of rows or of tasks."""

    items: list[T]
    number: int
    """Counts from 0."""
    n_pages: int
    total: int


@dataclass(frozen=True)
class Neighbors:
    """Where a row stands among the results, and the rows next to it."""

    previous: int | None
    next: int | None
    position: int | None
    """Counts from 0; None if the row is not among them."""
    total: int


@dataclass(frozen=True)
class Choices:
    """The available filters."""

    agents: tuple[str, ...]
    tools: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    failure_kinds: tuple[str, ...]
    fields: tuple[str, ...]
    """Numeric fields that rows can be sorted by."""
    columns: tuple[str, ...]
    """Every simple field of the first rows and their tasks."""
    reward_low: float | None
    reward_high: float | None


class Browser:
    """Answers questions about one file, and caches the latest answers; safe to share between threads."""

    def __init__(self, index: Index, run_files: RunFiles | None = None) -> None:
        self.index = index
        self._run_files = run_files or RunFiles(index)
        self._lock = threading.Lock()
        self._searches: OrderedDict[Any, TextSearch] = OrderedDict()
        self._answers: OrderedDict[Any, Any] = OrderedDict()

    def find_rows(
        self, filters: Filters = Filters(), sort: str = "file", descending: bool = False, *, budget_s: float = BUDGET_S
    ) -> Results[Sequence[int]]:
        """Return the rows that pass, as far as known after `budget_s`."""
        with self._lock:
            return self._find_rows(filters, sort, descending, budget_s)

    def find_groups(
        self, filters: Filters = Filters(), sort: str = "task", descending: bool = False
    ) -> Results[Groups]:
        """Return the tasks of the rows that pass; `sort` is one of GROUP_SORTS."""
        with self._lock:
            found = self._find_rows(filters, "file", False, BUDGET_S)
            key = ("groups", filters, sort, descending, self.index.progress.generation, found.total, found.searched)
            groups: Groups = self._remember(key, lambda: group_rows(self.index.columns, found.items, sort, descending))
            return Results(groups, found.complete, found.searched)

    def list_choices(self) -> Choices:
        """Return the filters that the indexed rows offer."""
        with self._lock:
            key = ("choices", *self.index.progress.version, bool(self._run_files.n_planned))
            found: Choices = self._remember(key, self._list_choices)
            return found

    def read_page(self, results: Results[Sequence[int]], number: int, size: int = PAGE_SIZE) -> ResultPage[RowSummary]:
        """Read a page of the results, with a preview of every row; a number out of range gives the nearest page."""
        n_pages, number = _clamp_page(number, results.total, size)
        shown = results.items[number * size : (number + 1) * size]
        items = [replace(self.summarize_row(row), preview=self._preview(row)) for row in shown]
        return ResultPage(items, number, n_pages, results.total)

    def read_group_page(self, grouped: Results[Groups], number: int, size: int = PAGE_SIZE) -> ResultPage[TaskGroup]:
        """Read a page of tasks, each with a preview of its first row."""
        n_pages, number = _clamp_page(number, grouped.total, size)
        shown = [grouped.items[at] for at in range(number * size, min((number + 1) * size, grouped.total))]
        groups = [describe_group(self.index.columns, rows, self._preview(rows[0])) for rows in shown]
        return ResultPage(groups, number, n_pages, grouped.total)

    def find_neighbors(self, results: Results[Sequence[int]], row: int) -> Neighbors:
        """Return which rows come before and after `row` in the results."""
        rows = results.items
        try:
            at = rows.index(row)
        except ValueError:
            return Neighbors(None, None, None, results.total)
        before = None
        after = None
        if at > 0:
            before = rows[at - 1]
        if at + 1 < results.total:
            after = rows[at + 1]
        return Neighbors(before, after, at, results.total)

    def summarize_row(self, row: int) -> RowSummary:
        """Return what the index knows about a row."""
        columns = self.index.columns
        flags = columns.flags[row]
        tokens_in = columns.input_tokens[row]
        tokens_out = columns.output_tokens[row]
        return RowSummary(
            row=row,
            task=columns.task[row],
            task_label=columns.label_task(row),
            rollout=columns.rollout[row],
            agent=columns.agents[columns.agent[row]] or None,
            reward=None if math.isnan(columns.reward[row]) else columns.reward[row],
            outcome=read_outcome(flags),
            failure_kind=columns.failures[columns.failure[row]] or None,
            finish_reason=columns.finishes[columns.finish[row]] or None,
            tool_calls=columns.tool_calls[row],
            tools=columns.toolsets[columns.tools[row]],
            input_tokens=None if tokens_in < 0 else tokens_in,
            output_tokens=None if tokens_out < 0 else tokens_out,
            length=columns.length[row],
            has_tool_error=bool(flags & TOOL_ERROR),
            is_cut_off=bool(flags & CUT_OFF),
            fields={name: value for name, column in list(columns.fields.items()) if (value := column[row]) == value},
        )

    def _preview(self, row: int) -> Preview:
        return preview_row(self.index.read_row(row), self._run_files.read_planned(row))

    def _list_choices(self) -> Choices:
        columns = self.index.columns
        rewards = [value for value in columns.reward[: columns.n_rows] if not math.isnan(value)]
        n_read = min(columns.n_rows, _FIELDS_FROM)
        key = ("fields", self.index.progress.generation, n_read, bool(self._run_files.n_planned))
        names = self._remember(
            key, lambda: tuple(dict.fromkeys(name for row in range(n_read) for name in self._preview(row).fields))
        )
        return Choices(
            agents=tuple(sorted(filter(None, columns.agents))),
            tools=tuple(sorted({name for tools in columns.toolsets for name in tools})),
            finish_reasons=tuple(sorted(filter(None, columns.finishes))),
            failure_kinds=tuple(sorted(filter(None, columns.failures))),
            fields=tuple(columns.fields),
            columns=names,
            reward_low=min(rewards, default=None),
            reward_high=max(rewards, default=None),
        )

    def _find_rows(self, filters: Filters, sort: str, descending: bool, budget_s: float) -> Results[Sequence[int]]:
        columns = self.index.columns
        generation = self.index.progress.generation
        n_rows = columns.n_rows
        without_text = replace(filters, text="")
        rows = self._remember(
            ("rows", without_text, generation, n_rows), lambda: filter_rows(columns, n_rows, without_text)
        )
        searched = 1.0
        seen = n_rows
        if filters.text:
            search = _remember(self._searches, (generation, filters.text), lambda: TextSearch(filters.text))
            search.advance(self.index.path, columns, n_rows, budget_s)
            seen = search.n_searched
            searched = search.n_searched / n_rows if n_rows else 1.0
            rows = self._remember(
                ("hits", filters, generation, n_rows, seen), lambda: intersect_rows(rows, search.hits, n_rows)
            )
        key = ("sorted", filters, sort, descending, generation, n_rows, seen)
        ordered = self._remember(key, lambda: sort_rows(columns, rows, sort, descending))
        return Results(ordered, seen >= n_rows, searched)

    def _remember(self, key: Any, make: Callable[[], Any]) -> Any:
        return _remember(self._answers, key, make)


def _remember(kept: "OrderedDict[Any, Any]", key: Any, make: Callable[[], Any]) -> Any:
    """Return the cached value of `key`, computing it if needed; drop the least recently used."""
    if key not in kept:
        kept[key] = make()
        while len(kept) > _MOST_REMEMBERED:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


def _clamp_page(number: int, total: int, size: int) -> tuple[int, int]:
    """Return how many pages there are, and the one nearest to `number`."""
    n_pages = max(-(-total // size), 1)
    return n_pages, min(max(number, 0), n_pages - 1)
