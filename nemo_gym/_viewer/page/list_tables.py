# SPDX-License-Identifier: Apache-2.0
"""The lists as HTML, with a pager: rollouts one by one, or tasks with the repeats of each together.

The small pieces that all parts of the page share are here too. Nothing is rendered as markdown.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nemo_gym._viewer.files.file_queries import ResultPage, Results, RowSummary
from nemo_gym._viewer.files.row_facts import FAILED
from nemo_gym._viewer.files.row_selection import GROUP_SORTS, Filters, TaskGroup
from nemo_gym._viewer.html.elements import Html, element, format_count, join
from nemo_gym._viewer.page.location import Location
from nemo_gym._viewer.page.open_files import OpenFile

_SUFFIXES = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
_MOST_DOTS = 48
_MOST_FIELDS = 3
_NONE = element("span", "–", class_="ngp-faint")
_NOUNS = {
    "rollouts": "rollout",
    "inputs": "planned rollout",
    "failures": "failure",
    "profile": "task",
    "dataset": "task",
    "other": "row",
}


# --- small pieces -----------------------------------------------------------------------------------------------------


def make_link(location: Location, *content: str, current: bool = False, **attributes: str) -> Html:
    """Make a link to a location, which the page follows without loading anew; `current` marks where the reader is."""
    return element("a", *content, href=location.to_query(), aria_current="true" if current else None, **attributes)


def make_badge(text: str, mood: str = "is-bad") -> Html:
    """Make a word in a colored box."""
    return element("span", text, class_=f"ngp-badge {mood}")


def render_empty(text: str) -> Html:
    """Say why there is nothing to show."""
    return element("div", element("p", text, class_="ngp-empty"), class_="ngp")


def render_chips(label: str, items: Iterable[Html]) -> Html:
    """Make a row of links that are choices."""
    return element("div", element("span", label, class_="ngp-label"), *items, class_="ngp-chips")


def render_step(location: Location | None, name: str, *content: str) -> Html:
    """Make a button to another location, disabled if there is none."""
    if location is None:
        return element("span", *content, class_="ngp-button", aria_disabled="true")
    return make_link(location, *content, id=name, class_="ngp-button")


def render_progress(share: float) -> Html:
    """Make a progress bar."""
    return element("progress", class_="ngp-progress", max="1", value=f"{share:.3f}")


def format_short(number: float) -> str:
    """Format a number compactly: 12.3k."""
    for least, unit, letter in _SUFFIXES:
        if abs(number) >= least:
            return f"{number / unit:.3g}{letter}"
    return f"{number:,.0f}" if abs(number) >= 100 or float(number).is_integer() else f"{number:.3g}"


def count_rows(file: OpenFile, number: int) -> str:
    """Return a number of rows with the noun for the rows of this file: `3 rollouts`."""
    return format_count(number, _NOUNS[file.index.kind])


def format_reward(reward: float) -> str:
    """Format a reward."""
    return f"{reward:.3g}" if abs(reward) < 1e6 else f"{reward:.2e}"


class RewardScale:
    """Rewards as shares between the lowest and the highest of a file, at least 0 to 1, for colors."""

    def __init__(self, file: OpenFile) -> None:
        self._browser = file.browser
        choices = file.browser.list_choices()
        self._low = min(choices.reward_low or 0.0, 0.0)
        self._high = max(choices.reward_high or 1.0, 1.0)

    def render_reward(self, reward: float | None) -> Html:
        """Render a reward as a colored number."""
        if reward is None:
            return _NONE
        return element("span", format_reward(reward), class_="ngp-reward", style=self._style(reward))

    def render_outcome(self, one: RowSummary) -> Html:
        """Render the reward or the failure of a rollout."""
        if one.outcome == "not run":
            return element("span", one.outcome, class_="ngp-badge")
        if one.outcome == "failed":
            return make_badge(one.failure_kind or "failed")
        return self.render_reward(one.reward)

    def render_dots(self, location: Location, rows: Sequence[int], most: int) -> Html:
        """Render rollouts of a task as dots, each a link; with a ring around the one that is open."""
        dots = element(
            "span",
            *(self._render_dot(location, self._browser.summarize_row(row)) for row in rows[:most]),
            class_="ngp-dots",
        )
        if len(rows) <= most:
            return dots
        return join([dots, f" +{len(rows) - most:,}"])

    def _render_dot(self, location: Location, one: RowSummary) -> Html:
        attributes = {"class_": "ngp-dot is-bad"}
        said: str = one.outcome
        if one.outcome == "failed" and one.failure_kind:
            said = one.failure_kind
        if one.outcome == "scored" and one.reward is not None:
            attributes = {"class_": "ngp-dot", "style": self._style(one.reward)}
            said = f"reward {format_reward(one.reward)}"
        title = f"rollout {one.rollout} · {said}"
        there = location.change(tab="rollout", row=one.row)
        return make_link(there, title=title, aria_label=title, current=one.row == location.row, **attributes)

    def _style(self, reward: float) -> str:
        return f"--share:{(reward - self._low) / (self._high - self._low):.3f}"


# --- lists ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of the table: what it is sorted by, its heading, and what makes its cells."""

    sort: str
    title: str
    cell: Callable[[Any], str]
    kind: str = ""
    """`number`: to the right; `preview`, `field`: cut off where it is long; `wide`: left out on narrow screens."""


def render_list(file: OpenFile, location: Location) -> tuple[Html, bool]:
    """Render the page of rollouts or tasks that a location stands for; return also whether all was searched."""
    if location.grouped:
        return _render_tasks(file, location)
    browser = file.browser
    results = browser.find_rows(location.filters, location.sort or "file", location.descending)
    page = browser.read_page(results, location.page)
    columns = _choose_columns(file, page.items, location.columns)
    rows = []
    for one in page.items:
        there = location.change(tab="rollout", row=one.row)
        cells = [column.cell(one) for column in columns]
        cells[0] = make_link(there, cells[0])
        current = "is-current" if one.row == location.row else None
        rows.append(_render_row(columns, cells, there, data_row=str(one.row), class_=current))
    return _render_table(file, location, results, page, _NOUNS[file.index.kind], columns, rows), results.complete


def _choose_columns(file: OpenFile, rows: Sequence[RowSummary], chosen: Sequence[str] = ()) -> list[Column]:
    """Return the columns that say something about these rows, and the fields that were chosen."""
    scale = RewardScale(file)
    choices = file.browser.list_choices()
    columns = [Column("task", "Task", lambda one: one.task_label, "number")]
    if file.index.kind in ("rollouts", "inputs", "failures"):
        columns.append(Column("rollout", "Rollout", lambda one: str(one.rollout), "number"))
    if file.index.kind == "failures":
        columns.append(Column("failure", "Failure", scale.render_outcome))
    elif any(one.outcome != "unscored" for one in rows):
        columns.append(Column("reward", "Reward", scale.render_outcome, "number"))
    if any(one.has_tool_error or one.is_cut_off for one in rows):
        columns.append(Column("", "Trouble", _render_troubles))
    if len(choices.agents) > 1:
        columns.append(Column("agent", "Agent", lambda one: one.agent or _NONE, "wide"))
    columns += [_make_field_column(name, choices.fields) for name in chosen or choices.fields[:_MOST_FIELDS]]
    if any(one.preview.failure for one in rows):
        columns.append(Column("", "Message", lambda one: _clip(one.preview.failure), "preview said"))
    columns.append(Column("", "Last user message", lambda one: _clip(one.preview.asked), "preview"))
    if any(one.preview.answer for one in rows):
        columns.append(Column("", "Answer", lambda one: _clip(one.preview.answer), "preview said"))
    if any(one.preview.target for one in rows):
        columns.append(Column("", "Target", lambda one: _clip(one.preview.target), "preview said"))
    if choices.finish_reasons:
        columns.append(Column("finish_reason", "Finish", lambda one: one.finish_reason or _NONE, "wide"))
    if choices.tools:
        columns.append(Column("tool_calls", "Tool calls", _render_tool_calls, "number wide"))
    if any(one.output_tokens is not None for one in rows):
        columns.append(Column("output_tokens", "Tokens", _render_tokens, "number wide"))
    elif any(one.length for one in rows):
        columns.append(Column("length", "Length", lambda one: format_short(one.length), "number wide"))
    return columns


def _clip(text: str) -> Html:
    return element("span", text, title=text) if text else _NONE


def _render_troubles(one: RowSummary) -> Html:
    badges = []
    if one.has_tool_error:
        badges.append(make_badge("crashed tool"))
    if one.is_cut_off:
        badges.append(make_badge("cut off", "is-mid"))
    return Html(" ".join(badges)) or _NONE


def _make_field_column(name: str, numbers: Sequence[str] = ()) -> Column:
    """Make a column of a field of the row or its task; what is a number in the index can be sorted by."""

    def cell(one: RowSummary | TaskGroup) -> str:
        if isinstance(one, RowSummary) and name in one.fields:
            return format_reward(one.fields[name])
        return one.preview.fields.get(name) or _NONE

    if name in numbers:
        return Column(name, name, cell, "number wide")
    return Column("", name, cell, "field wide")


def _render_tool_calls(one: RowSummary) -> Html:
    return element("span", str(one.tool_calls), title=", ".join(one.tools))


def _render_tokens(one: RowSummary) -> Html:
    if one.output_tokens is None:
        return _NONE
    title = f"{one.output_tokens:,} written"
    if one.input_tokens is not None:
        title = f"{one.input_tokens:,} read, {title}"
    return element("span", format_short(one.output_tokens), title=title)


def _render_tasks(file: OpenFile, location: Location) -> tuple[Html, bool]:
    """Render tasks, worst first unless something else is chosen; a task leads to its rollouts."""
    browser = file.browser
    sort = location.sort or GROUP_SORTS[0]
    grouped = browser.find_groups(location.filters, sort, location.descending)
    page = browser.read_group_page(grouped, location.page)
    columns = _choose_task_columns(file, location, page.items)
    rows = []
    for group in page.items:
        cells = [column.cell(group) for column in columns]
        rows.append(_render_row(columns, cells, _locate_rollouts(location, group), data_task=str(group.task)))
    html = _render_table(file, location, grouped, page, "task", columns, rows)
    if rows and file.failures is not None:
        shown = file.index.columns
        failed = file.failures.columns
        missing = len(set(failed.task[: failed.n_rows]).difference(shown.task[: shown.n_rows]))
        if missing:
            text = f"{format_count(missing, 'more task')} {'has' if missing == 1 else 'have'} no scored rollout"
            html = join([html, element("p", f"{text}: see {file.failures.name}.", class_="ngp ngp-note")])
    return html, grouped.complete


def _choose_task_columns(file: OpenFile, location: Location, groups: Sequence[TaskGroup]) -> list[Column]:
    scale = RewardScale(file)
    failures = file.failures

    def link_rollouts(one: TaskGroup) -> Html:
        return make_link(_locate_rollouts(location, one), one.task_label)

    failed_elsewhere = Counter[int]()
    if failures is not None:
        failed = failures.columns
        failed_elsewhere.update(failed.task[row] for row in range(failed.n_rows) if failed.flags[row] & FAILED)

    def render_failed(one: TaskGroup) -> Html:
        n_failed = one.n_failed + failed_elsewhere[one.task]
        return make_badge(f"{n_failed:,}") if n_failed else _NONE

    columns = [Column("task", "Task", link_rollouts, "number")]
    if len(file.browser.list_choices().agents) > 1:
        columns.append(Column("", "Agent", lambda one: one.agent or _NONE, "wide"))
    columns.append(Column("pass_rate", "Pass rate", _render_pass_rate, "number"))
    columns.append(Column("rollouts", "Rollouts", lambda one: scale.render_dots(location, one.rows, _MOST_DOTS)))
    columns.append(Column("reward", "Mean", lambda one: scale.render_reward(one.mean_reward), "number wide"))
    if failures is not None:
        columns.append(Column("", "Failed", render_failed, "number"))
    columns += [_make_field_column(name) for name in location.columns]
    columns.append(Column("", "Last user message", lambda one: _clip(one.preview.asked), "preview"))
    if any(one.preview.target for one in groups):
        columns.append(Column("", "Target", lambda one: _clip(one.preview.target), "preview said"))
    return columns


def _locate_rollouts(location: Location, group: TaskGroup) -> Location:
    filters = replace(location.filters, task=group.task, agents=(group.agent,) if group.agent else ())
    return location.change(grouped=False, filters=filters, sort="", page=0)


def _render_pass_rate(group: TaskGroup) -> Html:
    if group.pass_rate is None:
        return _NONE
    rate = element("b", f"{group.pass_rate:.0%}")
    return element("span", element("i"), rate, class_="ngp-rate", style=f"--rate:{group.pass_rate:.3f}")


# --- the table --------------------------------------------------------------------------------------------------------


def _render_table(
    file: OpenFile,
    location: Location,
    found: Results[Any],
    page: ResultPage[Any],
    noun: str,
    columns: Sequence[Column],
    rows: Sequence[Html],
) -> Html:
    """Render the rows between their number and the pager, or say why there are none."""
    is_filtered = not location.filters.is_empty
    text = format_count(found.total, noun)
    if is_filtered:
        text += " found"
    parts: list[str] = [element("span", text, class_="ngp-strong")]
    if not found.complete:
        parts += [render_progress(found.searched), f"searched {found.searched:.0%}"]
    if is_filtered:
        parts.append(make_link(location.change(filters=Filters(), page=0), "Clear filters", class_="ngp-quiet"))
    above = element("div", *parts, class_="ngp-found")
    if not rows:
        if not found.complete or not file.index.progress.complete:
            text = "Nothing found so far."
        elif is_filtered:
            text = f"No {noun} matches these filters."
        else:
            text = "The file holds no rows that can be shown."
        return element("div", above, element("p", text, class_="ngp-empty"), class_="ngp")
    head = element("thead", element("tr", *(_render_heading(location, column) for column in columns)))
    table = element("table", head, element("tbody", *rows), class_="ngp-table")
    return element(
        "div", above, element("div", table, class_="ngp-scroll"), _render_pager(location, page), class_="ngp"
    )


def _render_heading(location: Location, column: Column) -> Html:
    if not column.sort:
        return element("th", column.title, scope="col", class_=column.kind)
    is_sorted = location.sort == column.sort
    order = "none"
    if is_sorted:
        order = "descending" if location.descending else "ascending"
    then = location.change(sort=column.sort, descending=is_sorted and not location.descending, page=0)
    return element("th", make_link(then, column.title), scope="col", class_=column.kind, aria_sort=order)


def _render_row(columns: Sequence[Column], cells: Sequence[str], location: Location, **attributes: str | None) -> Html:
    """Render a row that leads somewhere; cells know their heading, for screens that are too narrow for columns."""
    named = zip(columns, cells, strict=True)
    body = (element("td", cell, class_=column.kind, data_label=column.title) for column, cell in named)
    return element("tr", *body, data_href=location.to_query(), **attributes)


def _render_pager(location: Location, page: ResultPage[Any]) -> Html | None:
    if page.n_pages <= 1:
        return None
    before = None
    after = None
    if page.number > 0:
        before = location.change(page=page.number - 1)
    if page.number + 1 < page.n_pages:
        after = location.change(page=page.number + 1)
    return element(
        "nav",
        render_step(before, "ngp-previous-page", "‹ Previous page"),
        element("span", f"Page {page.number + 1:,} of {page.n_pages:,}", class_="ngp-faint"),
        render_step(after, "ngp-next-page", "Next page ›"),
        class_="ngp-pager",
    )
