# SPDX-License-Identifier: Apache-2.0
"""Find one's way in a file: filters, text search, order, pages, the repeats of a task together, the next and the last.

Answers come within a time budget, from what is indexed so far; asking again goes on. Nothing is rendered here.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from nemo_gym._reports.columns import Columns
from nemo_gym._reports.index import Index
from nemo_gym._reports.rollout import Preview, preview_row
from nemo_gym._reports.row_facts import CUT_OFF, FAILED, SCORED, TOKENS, TOOL_ERROR
from nemo_gym._reports.row_selection import GROUP_SORTS as GROUP_SORTS
from nemo_gym._reports.row_selection import SORTS as SORTS
from nemo_gym._reports.row_selection import Filters as Filters
from nemo_gym._reports.row_selection import Groups, TaskGroup, TextSearch, both, group_rows, matching, ordered
from nemo_gym._reports.run_files import RunFiles

Outcome = Literal["scored", "failed", "unscored"]
PAGE_SIZE = 25
BUDGET_S = 0.25
_KEPT = 16
_FIELDS_FROM = 5
"""So many rows tell which fields there are to choose from."""


@dataclass(frozen=True)
class Results:
    """The rows that passed the filters, in order."""

    rows: Sequence[int]
    complete: bool
    """Every row that is indexed was looked at."""
    searched: float
    """The share of the indexed rows that the text search has seen; 1 without one."""

    @property
    def total(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class GroupedResults:
    """The same, the rollouts of each task together."""

    groups: Groups
    complete: bool
    searched: float

    @property
    def total(self) -> int:
        """The number of tasks."""
        return len(self.groups)


@dataclass(frozen=True)
class RowSummary:
    """A row as a table shows it."""

    row: int
    line: int
    task: int
    task_label: str
    rollout: int
    agent: str | None
    reward: float | None
    outcome: Outcome
    failure_kind: str | None
    finish_reason: str | None
    tool_calls: int
    tools: tuple[str, ...]
    input_tokens: int | None
    output_tokens: int | None
    length: int
    has_tokens: bool
    has_tool_error: bool
    is_cut_off: bool
    fields: dict[str, float]
    preview: Preview = field(default_factory=Preview)


@dataclass(frozen=True)
class Page:
    items: list[RowSummary]
    number: int
    """Counts from 0."""
    n_pages: int
    total: int


@dataclass(frozen=True)
class GroupPage:
    groups: list[TaskGroup]
    number: int
    n_pages: int
    total: int


@dataclass(frozen=True)
class Neighbours:
    """Where a row stands among the results, and which are beside it."""

    previous: int | None
    next: int | None
    position: int | None
    """Counts from 0; None if the row is not among them."""
    total: int


@dataclass(frozen=True)
class Choices:
    """What there is to filter by."""

    agents: tuple[str, ...]
    tools: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    failure_kinds: tuple[str, ...]
    fields: tuple[str, ...]
    """The numbers of rows that can be sorted by."""
    columns: tuple[str, ...]
    """Every simple field of the first rows and their tasks."""
    reward_low: float | None
    reward_high: float | None


class Browser:
    """Answers questions about one file, and remembers the latest answers; safe to share between threads."""

    def __init__(self, index: Index, run_files: RunFiles | None = None) -> None:
        self.index = index
        self._run_files = run_files or RunFiles(index)
        self._lock = threading.Lock()
        self._searches: OrderedDict[tuple[int, str], TextSearch] = OrderedDict()
        self._kept: OrderedDict[Any, Any] = OrderedDict()

    def results(
        self, filters: Filters = Filters(), sort: str = "file", descending: bool = False, *, budget_s: float = BUDGET_S
    ) -> Results:
        """The rows that pass, as far as they are known after `budget_s`."""
        with self._lock:
            return self._results(filters, sort, descending, budget_s)

    def groups(
        self, filters: Filters = Filters(), sort: str = "task", descending: bool = False, *, budget_s: float = BUDGET_S
    ) -> GroupedResults:
        """The same by task; `sort` is one of GROUP_SORTS."""
        with self._lock:
            found = self._results(filters, "file", False, budget_s)
            key = ("groups", filters, sort, descending, self.index.progress().generation, found.total, found.searched)
            groups = self._remember(key, lambda: group_rows(self.index.columns, found.rows, sort, descending))
            return GroupedResults(groups, found.complete, found.searched)

    def choices(self) -> Choices:
        """What the rows that are indexed offer to filter by."""
        with self._lock:
            key = ("choices", *self.index.progress().version, bool(self._run_files.n_planned))
            found: Choices = self._remember(key, self._choices)
            return found

    def page(self, results: Results, number: int, size: int = PAGE_SIZE) -> Page:
        """A page of the results, with a preview of every row; a number beyond the ends is the nearest page."""
        number, n_pages = _clamped(number, results.total, size)
        items = [
            replace(self.summary(row), preview=self._preview(row))
            for row in results.rows[number * size : (number + 1) * size]
        ]
        return Page(items, number, n_pages, results.total)

    def group_page(self, grouped: GroupedResults, number: int, size: int = PAGE_SIZE) -> GroupPage:
        number, n_pages = _clamped(number, grouped.total, size)
        shown = range(number * size, min((number + 1) * size, grouped.total))
        groups = [grouped.groups.group(self.index.columns, place) for place in shown]
        previewed = [replace(group, preview=self._preview(group.rows[0])) for group in groups]
        return GroupPage(previewed, number, n_pages, grouped.total)

    def neighbours(self, results: Results, row: int) -> Neighbours:
        try:
            at = results.rows.index(row)
        except ValueError:
            return Neighbours(None, None, None, results.total)
        before = results.rows[at - 1] if at else None
        after = results.rows[at + 1] if at + 1 < results.total else None
        return Neighbours(before, after, at, results.total)

    def summary(self, row: int) -> RowSummary:
        """What the index knows of a row."""
        columns = self.index.columns
        flags, tokens_in, tokens_out = columns.flags[row], columns.input_tokens[row], columns.output_tokens[row]
        return RowSummary(
            row=row,
            line=columns.line[row],
            task=columns.task[row],
            task_label=columns.task_label(row),
            rollout=columns.rollout[row],
            agent=columns.agents[columns.agent[row]] or None,
            reward=columns.reward_of(row),
            outcome="failed" if flags & FAILED else "scored" if flags & SCORED else "unscored",
            failure_kind=columns.failures[columns.failure[row]] or None,
            finish_reason=columns.finishes[columns.finish[row]] or None,
            tool_calls=columns.tool_calls[row],
            tools=columns.toolsets[columns.tools[row]],
            input_tokens=None if tokens_in < 0 else tokens_in,
            output_tokens=None if tokens_out < 0 else tokens_out,
            length=columns.length[row],
            has_tokens=bool(flags & TOKENS),
            has_tool_error=bool(flags & TOOL_ERROR),
            is_cut_off=bool(flags & CUT_OFF),
            fields={name: value for name, column in list(columns.fields.items()) if (value := column[row]) == value},
        )

    def _preview(self, row: int) -> Preview:
        return preview_row(self.index.read(row), self._run_files.read_planned(row))

    def _field_names(self, n_rows: int) -> tuple[str, ...]:
        def read() -> tuple[str, ...]:
            found = [self._preview(row).fields for row in range(n_rows)]
            return tuple(dict.fromkeys(name for fields in found for name in fields))

        known = bool(self._run_files.n_planned)
        names: tuple[str, ...] = self._remember(("fields", self.index.progress().generation, n_rows, known), read)
        return names

    def _choices(self) -> Choices:
        columns = self.index.columns
        known = [value for value in columns.reward[: columns.n_rows] if not math.isnan(value)]
        return Choices(
            agents=tuple(sorted(filter(None, columns.agents))),
            tools=tuple(sorted({name for tools in columns.toolsets for name in tools})),
            finish_reasons=tuple(sorted(filter(None, columns.finishes))),
            failure_kinds=tuple(sorted(filter(None, columns.failures))),
            fields=tuple(columns.fields),
            columns=self._field_names(min(columns.n_rows, _FIELDS_FROM)),
            reward_low=min(known, default=None),
            reward_high=max(known, default=None),
        )

    def _results(self, filters: Filters, sort: str, descending: bool, budget_s: float) -> Results:
        columns, generation = self.index.columns, self.index.progress().generation
        n_rows = columns.n_rows
        without_text = replace(filters, text="")
        rows = self._remember(
            ("rows", without_text, generation, n_rows), lambda: matching(columns, n_rows, without_text)
        )
        searched, seen = 1.0, n_rows
        if filters.text:
            search = self._advance(filters.text, columns, n_rows, budget_s, generation)
            seen, searched = search.n_searched, search.n_searched / n_rows if n_rows else 1.0
            rows = self._remember(("hits", filters, generation, n_rows, seen), lambda: both(rows, search.hits, n_rows))
        key = ("sorted", filters, sort, descending, generation, n_rows, seen)
        in_order = self._remember(key, lambda: ordered(columns, rows, sort, descending))
        return Results(in_order, seen >= n_rows, searched)

    def _advance(self, text: str, columns: Columns, n_rows: int, budget_s: float, generation: int) -> TextSearch:
        key = (generation, text)
        search = self._searches.pop(key, None) or TextSearch(text)
        self._searches[key] = search
        while len(self._searches) > _KEPT:
            self._searches.popitem(last=False)
        search.advance(self.index.path, columns, n_rows, budget_s)
        return search

    def _remember(self, key: Any, make: Callable[[], Any]) -> Any:
        if key in self._kept:
            self._kept.move_to_end(key)
        else:
            self._kept[key] = make()
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]


def _clamped(number: int, total: int, size: int) -> tuple[int, int]:
    n_pages = max(-(-total // size), 1)
    return min(max(number, 0), n_pages - 1), n_pages
