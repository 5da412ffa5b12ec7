# SPDX-License-Identifier: Apache-2.0
"""The lists as HTML, with a pager: rollouts one by one, or tasks with the repeats of each together.

The small pieces that all parts of the page share are here too. Everything that comes from a file is escaped here or by
the caller; nothing is rendered as markdown.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from nemo_gym._reports.query import RowSummary
from nemo_gym._reports.row_selection import GROUP_SORTS, Filters, TaskGroup
from nemo_gym._view.location import Location, link
from nemo_gym._view.open_files import OpenFile

_SUFFIXES = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
_MOST_DOTS = 48
_MOST_FIELDS = 3
_NONE = '<span class="ngp-faint">–</span>'
_NOUNS = {
    "rollouts": "rollout",
    "inputs": "planned rollout",
    "failures": "failure",
    "profile": "task",
    "dataset": "task",
    "other": "row",
}


# --- small pieces -----------------------------------------------------------------------------------------------------


def tag(name: str, kind: str, *content: str) -> str:
    """Make an element of a class; its content is HTML."""
    return f'<{name} class="{kind}">{"".join(content)}</{name}>'


def render_empty(text: str) -> str:
    """Say why there is nothing to show."""
    return tag("div", "ngp", tag("p", "ngp-empty", escape(text)))


def render_chips(label: str, items: Iterable[str]) -> str:
    """Make a row of links that are choices."""
    return tag("div", "ngp-chips", tag("span", "ngp-label", escape(label)), *items)


def render_step(location: Location | None, text: str, name: str) -> str:
    """Make a button to another location; one that cannot be pressed where there is none."""
    if location is None:
        return f'<span class="ngp-button" aria-disabled="true">{text}</span>'
    return link(location, text, kind="ngp-button", name=name)


def format_short(number: float) -> str:
    """Format a number in little space: 12.3k."""
    for least, unit, letter in _SUFFIXES:
        if abs(number) >= least:
            return f"{number / unit:.3g}{letter}"
    return f"{number:,.0f}" if abs(number) >= 100 or float(number).is_integer() else f"{number:.3g}"


def format_count(number: int, noun: str) -> str:
    """Say how many there are: `1 task`, `2 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def count_rows(file: OpenFile, number: int) -> str:
    """Say how many rows of a file there are, by what a row of it is."""
    return format_count(number, _NOUNS[file.index.kind])


def format_reward(reward: float) -> str:
    """Format a reward as it is written everywhere."""
    return f"{reward:.3g}" if abs(reward) < 1e6 else f"{reward:.2e}"


class RewardScale:
    """Rewards as shares between the lowest and the highest of a file, at least 0 to 1, for colours."""

    def __init__(self, file: OpenFile) -> None:
        self._browser = file.browser
        choices = file.browser.list_choices()
        self._low = min(0.0, choices.reward_low if choices.reward_low is not None else 0.0)
        self._high = max(1.0, choices.reward_high if choices.reward_high is not None else 1.0)

    def render_reward(self, reward: float) -> str:
        """Render a reward as a coloured number."""
        return f'<span class="ngp-reward" {self._style(reward)}>{format_reward(reward)}</span>'

    def render_outcome(self, one: RowSummary) -> str:
        """Render what a rollout came to."""
        if one.outcome == "failed":
            return tag("span", "ngp-badge is-bad", escape(one.failure_kind or "failed"))
        return self.render_reward(one.reward) if one.reward is not None else _NONE

    def render_dots(self, location: Location, rows: Sequence[int], most: int) -> str:
        """Render rollouts of a task as dots, each a link; a ring round the one that is open."""
        dots = [self._render_dot(location, self._browser.summarise_row(row)) for row in rows[:most]]
        more = f" +{len(rows) - most:,}" if len(rows) > most else ""
        return tag("span", "ngp-dots", *dots) + more

    def _render_dot(self, location: Location, one: RowSummary) -> str:
        if one.outcome == "failed" or one.reward is None:
            said, kind, style = one.failure_kind or one.outcome, "ngp-dot is-bad", ""
        else:
            said, kind, style = f"reward {format_reward(one.reward)}", "ngp-dot", " " + self._style(one.reward)
        ring = ' aria-current="true"' if one.row == location.row else ""
        title = escape(f"rollout {one.rollout} · {said}")
        query = escape(location.change(tab="rollout", row=one.row).to_query())
        return f'<a href="{query}" class="{kind}" title="{title}" aria-label="{title}"{style}{ring}></a>'

    def _style(self, reward: float) -> str:
        share = (reward - self._low) / (self._high - self._low)
        return f'style="--share:{share:.3f}"'


# --- lists ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of the table: what it is sorted by, its heading, and its cells as HTML."""

    sort: str
    title: str
    cell: Callable[[Any], str]
    kind: str = ""
    """`number`: to the right; `preview`, `field`: cut off where it is long; `wide`: left out on narrow screens."""


@dataclass(frozen=True)
class RenderedList:
    """What the Browse tab shows, and whether a search is still going on."""

    html: str
    complete: bool


@dataclass(frozen=True)
class _Found:
    """How much was found, and which page of it is shown."""

    total: int
    complete: bool
    searched: float
    page: int
    n_pages: int
    noun: str


def render_list(file: OpenFile, location: Location, *, budget_s: float = 0.25) -> RenderedList:
    """Render the page of rollouts or tasks that a location stands for."""
    if location.grouped:
        return _render_tasks(file, location, budget_s)
    browser = file.browser
    results = browser.find_rows(location.filters, location.sort or "file", location.descending, budget_s=budget_s)
    page = browser.read_page(results, location.page)
    noun = _NOUNS[file.index.kind]
    found = _Found(results.total, results.complete, results.searched, page.number, page.n_pages, noun)
    columns = _choose_columns(file, page.items, location.columns)
    rows = []
    for one in page.items:
        there = location.change(tab="rollout", row=one.row)
        cells = [column.cell(one) for column in columns]
        cells[0] = link(there, cells[0])
        current = ' class="is-current"' if one.row == location.row else ""
        rows.append(_render_row(columns, cells, f'data-row="{one.row}"', there, current))
    return RenderedList(_render_table(file, location, found, columns, rows), results.complete)


def _choose_columns(file: OpenFile, rows: Sequence[RowSummary], chosen: Sequence[str] = ()) -> list[Column]:
    """Return the columns that say something about these rows, and the fields that were chosen."""
    scale = RewardScale(file)
    choices = file.browser.list_choices()
    columns = [Column("task", "Task", lambda one: escape(one.task_label), "number")]
    if file.index.kind in ("rollouts", "inputs", "failures"):
        columns.append(Column("rollout", "Rollout", lambda one: str(one.rollout), "number"))
    if file.index.kind == "failures":
        columns.append(Column("failure", "Failure", scale.render_outcome))
    elif any(one.outcome != "unscored" for one in rows):
        columns.append(Column("reward", "Reward", scale.render_outcome, "number"))
    if any(one.has_tool_error or one.is_cut_off for one in rows):
        columns.append(Column("", "Trouble", _render_troubles))
    if len(choices.agents) > 1:
        columns.append(Column("agent", "Agent", lambda one: escape(one.agent or "") or _NONE, "wide"))
    columns += [_make_field_column(name, choices.fields) for name in chosen or choices.fields[:_MOST_FIELDS]]
    if any(one.preview.failure for one in rows):
        columns.append(Column("", "Message", lambda one: _clip(one.preview.failure), "preview said"))
    columns.append(Column("", "Asked last", lambda one: _clip(one.preview.asked), "preview"))
    if any(one.preview.answer for one in rows):
        columns.append(Column("", "Answer", lambda one: _clip(one.preview.answer), "preview said"))
    if any(one.preview.target for one in rows):
        columns.append(Column("", "Target", lambda one: _clip(one.preview.target), "preview said"))
    if choices.finish_reasons:
        columns.append(Column("finish_reason", "Finish", lambda one: escape(one.finish_reason or "") or _NONE, "wide"))
    if choices.tools:
        columns.append(Column("tool_calls", "Tool calls", _render_tool_calls, "number wide"))
    if any(one.output_tokens is not None for one in rows):
        columns.append(Column("output_tokens", "Tokens", _render_tokens, "number wide"))
    elif any(one.length for one in rows):
        columns.append(Column("length", "Length", lambda one: format_short(one.length), "number wide"))
    return columns


def _clip(text: str) -> str:
    return f'<span title="{escape(text)}">{escape(text)}</span>' if text else _NONE


def _render_troubles(one: RowSummary) -> str:
    badges = [tag("span", "ngp-badge is-bad", "crashed tool")] if one.has_tool_error else []
    badges += [tag("span", "ngp-badge is-mid", "cut off")] if one.is_cut_off else []
    return " ".join(badges) or _NONE


def _make_field_column(name: str, numbers: Sequence[str]) -> Column:
    """Make a column of a field of the row or its task; what is a number in the index can be sorted by."""

    def cell(one: RowSummary) -> str:
        value = one.fields.get(name)
        return format_reward(value) if value is not None else escape(one.preview.fields.get(name, "")) or _NONE

    return Column(name, name, cell, "number wide") if name in numbers else Column("", name, cell, "field wide")


def _render_tool_calls(one: RowSummary) -> str:
    return f'<span title="{escape(", ".join(one.tools))}">{one.tool_calls}</span>'


def _render_tokens(one: RowSummary) -> str:
    if one.output_tokens is None:
        return _NONE
    read = "" if one.input_tokens is None else f"{one.input_tokens:,} read, "
    return f'<span title="{read}{one.output_tokens:,} written">{format_short(one.output_tokens)}</span>'


def _render_tasks(file: OpenFile, location: Location, budget_s: float) -> RenderedList:
    """Render tasks, worst first unless something else is chosen; a task leads to its rollouts."""
    browser, sort = file.browser, location.sort or GROUP_SORTS[0]
    grouped = browser.find_groups(location.filters, sort, location.descending, budget_s=budget_s)
    page = browser.read_group_page(grouped, location.page)
    found = _Found(page.total, grouped.complete, grouped.searched, page.number, page.n_pages, "task")
    columns = _choose_task_columns(file, location, page.items)
    rows = []
    for group in page.items:
        cells = [column.cell(group) for column in columns]
        there = _locate_rollouts(location, group)
        rows.append(_render_row(columns, cells, f'data-task="{group.task}"', there))
    html = _render_table(file, location, found, columns, rows)
    if rows and file.failures is not None:
        shown, failed = file.index.columns, file.failures.columns
        missing = len(set(failed.task[: failed.n_rows]).difference(shown.task[: shown.n_rows]))
        if missing:
            text = f"{format_count(missing, 'more task')} {'has' if missing == 1 else 'have'} no scored rollout"
            html += tag("p", "ngp ngp-note", f"{text}: see {escape(file.failures.name)}.")
    return RenderedList(html, grouped.complete)


def _choose_task_columns(file: OpenFile, location: Location, groups: Sequence[TaskGroup]) -> list[Column]:
    scale, failures = RewardScale(file), file.failures

    def render_mean(one: TaskGroup) -> str:
        return _NONE if one.mean_reward is None else scale.render_reward(one.mean_reward)

    def render_failed(one: TaskGroup) -> str:
        n_failed = one.n_failed + (failures.columns.task.count(one.task) if failures else 0)
        return tag("span", "ngp-badge is-bad", f"{n_failed:,}") if n_failed else _NONE

    columns = [
        Column("task", "Task", lambda one: link(_locate_rollouts(location, one), escape(one.task_label)), "number")
    ]
    if len(file.browser.list_choices().agents) > 1:
        columns.append(Column("", "Agent", lambda one: escape(one.agent or "") or _NONE, "wide"))
    columns.append(Column("pass_rate", "Pass rate", _render_pass_rate, "number"))
    columns.append(Column("rollouts", "Rollouts", lambda one: scale.render_dots(location, one.rows, _MOST_DOTS)))
    columns.append(Column("reward", "Mean", render_mean, "number wide"))
    if failures is not None:
        columns.append(Column("", "Failed", render_failed, "number"))
    columns += [_make_task_field_column(name) for name in location.columns]
    columns.append(Column("", "Asked last", lambda one: _clip(one.preview.asked), "preview"))
    if any(one.preview.target for one in groups):
        columns.append(Column("", "Target", lambda one: _clip(one.preview.target), "preview said"))
    return columns


def _make_task_field_column(name: str) -> Column:
    return Column("", name, lambda one: escape(one.preview.fields.get(name, "")) or _NONE, "field wide")


def _locate_rollouts(location: Location, group: TaskGroup) -> Location:
    filters = replace(location.filters, task=group.task, agents=(group.agent,) if group.agent else ())
    return location.change(grouped=False, filters=filters, sort="", page=0)


def _render_pass_rate(group: TaskGroup) -> str:
    if group.pass_rate is None:
        return _NONE
    share = f"{group.pass_rate:.0%}"
    return f'<span class="ngp-rate" style="--rate:{group.pass_rate:.3f}"><i></i><b>{share}</b></span>'


# --- the table --------------------------------------------------------------------------------------------------------


def _render_table(
    file: OpenFile, location: Location, found: _Found, columns: Sequence[Column], rows: Sequence[str]
) -> str:
    """Render the rows with how many were found above and the pager below; why there are none, if so."""
    text = format_count(found.total, found.noun) + ("" if location.filters.is_empty else " found")
    parts = [tag("span", "ngp-strong", text)]
    if not found.complete:
        parts.append(f'<progress class="ngp-progress" max="1" value="{found.searched:.3f}"></progress>')
        parts.append(f"searched {found.searched:.0%}")
    if not location.filters.is_empty:
        parts.append(link(location.change(filters=Filters(), page=0), "Clear filters", kind="ngp-quiet"))
    above = tag("div", "ngp-found", *parts)
    if not rows:
        if not found.complete or not file.index.progress.complete:
            text = "Nothing found so far."
        elif location.filters.is_empty:
            text = "The file holds no rows that can be shown."
        else:
            text = f"No {found.noun} matches these filters."
        return tag("div", "ngp", above, tag("p", "ngp-empty", text))
    head = "".join(_render_heading(location, column) for column in columns)
    table = f'<table class="ngp-table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return tag("div", "ngp", above, tag("div", "ngp-scroll", table), _render_pager(location, found))


def _render_heading(location: Location, column: Column) -> str:
    if not column.sort:
        return f'<th scope="col" class="{column.kind}">{escape(column.title)}</th>'
    is_sorted = location.sort == column.sort
    order = ("descending" if location.descending else "ascending") if is_sorted else "none"
    then = location.change(sort=column.sort, descending=is_sorted and not location.descending, page=0)
    return f'<th scope="col" class="{column.kind}" aria-sort="{order}">{link(then, escape(column.title))}</th>'


def _render_row(
    columns: Sequence[Column], cells: Sequence[str], name: str, location: Location, current: str = ""
) -> str:
    """Render a row that leads somewhere; cells know their heading, for screens that are too narrow for columns."""
    body = "".join(
        f'<td class="{column.kind}" data-label="{escape(column.title)}">{html}</td>'
        for column, html in zip(columns, cells, strict=True)
    )
    return f'<tr {name} data-href="{escape(location.to_query())}"{current}>{body}</tr>'


def _render_pager(location: Location, found: _Found) -> str:
    if found.n_pages <= 1:
        return ""
    before = location.change(page=found.page - 1) if found.page > 0 else None
    after = location.change(page=found.page + 1) if found.page + 1 < found.n_pages else None
    return tag(
        "nav",
        "ngp-pager",
        render_step(before, "‹ Previous page", "ngp-previous-page"),
        tag("span", "ngp-faint", f"Page {found.page + 1:,} of {found.n_pages:,}"),
        render_step(after, "Next page ›", "ngp-next-page"),
    )
