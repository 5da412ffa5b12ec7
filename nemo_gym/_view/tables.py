# SPDX-License-Identifier: Apache-2.0
"""The lists as HTML, with a pager: rollouts one by one, or tasks with the repeats of each together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from nemo_gym._reports.query import GROUP_SORTS, Browser, Filters, RowSummary
from nemo_gym._reports.row_selection import TaskGroup
from nemo_gym._view.location import Place
from nemo_gym._view.open_files import OpenFile

_SHORT = ((1e9, "G"), (1e6, "M"), (1e4, "k"))


def link(place: Place, html: str, *, kind: str = "", title: str = "", name: str = "", current: bool = False) -> str:
    """A link to a place, which the page follows without loading anew; `html` is its content, escaped already."""
    attributes = {"id": name, "class": kind, "title": title, "aria-current": "true" if current else ""}
    given = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return f'<a href="{escape(place.query())}"{given}>{html}</a>'


def tag(name: str, kind: str, *content: str) -> str:
    """An element of a class; its content is HTML."""
    return f'<{name} class="{kind}">{"".join(content)}</{name}>'


def chips(label: str, items: Iterable[str]) -> str:
    """A row of links that are choices."""
    return tag("div", "ngp-chips", tag("span", "ngp-label", escape(label)), *items)


def count(number: int) -> str:
    """A whole number, readable."""
    return f"{number:,}"


def short(number: float) -> str:
    """A number in little space: 12.3k."""
    for size, letter in _SHORT:
        if abs(number) >= size:
            return f"{number / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{number:,.0f}" if abs(number) >= 100 or float(number).is_integer() else f"{number:.3g}"


def plural(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def reward_text(reward: float) -> str:
    """A reward as it is written everywhere."""
    return f"{reward:.3g}" if abs(reward) < 1e6 else f"{reward:.2e}"


class RewardScale:
    """Rewards as shares between the lowest and the highest of a file, at least 0 to 1, for colours."""

    def __init__(self, low: float | None, high: float | None) -> None:
        self._low = min(0.0, low if low is not None else 0.0)
        self._high = max(1.0, high if high is not None else 1.0)

    @classmethod
    def of(cls, browser: Browser) -> "RewardScale":
        """The scale of a file."""
        choices = browser.choices()
        return cls(choices.reward_low, choices.reward_high)

    def style(self, reward: float) -> str:
        """The attribute that colours an element."""
        share = (reward - self._low) / (self._high - self._low)
        return f'style="--share:{share:.3f}"'

    def chip(self, reward: float) -> str:
        """A reward as a coloured number."""
        return f'<span class="ngp-reward" {self.style(reward)}>{reward_text(reward)}</span>'

    def outcome(self, one: RowSummary) -> str:
        """What a rollout came to, as a chip."""
        if one.outcome == "failed":
            return tag("span", "ngp-badge is-bad", escape(one.failure_kind or "failed"))
        return self.chip(one.reward) if one.reward is not None else tag("span", "ngp-faint", "–")

    def dots(self, place: Place, rollouts: Sequence[RowSummary], current: int | None = None) -> str:
        """Rollouts of a task as dots, each a link; a ring round the `current` one."""
        return tag("span", "ngp-dots", *(self._dot(place, one, one.row == current) for one in rollouts))

    def _dot(self, place: Place, one: RowSummary, current: bool) -> str:
        at = place.at(tab="rollout", row=one.row)
        number = f"rollout {one.rollout} · "
        if one.outcome == "failed" or one.reward is None:
            said, kind, style = one.failure_kind or one.outcome, "ngp-dot is-bad", ""
        else:
            said, kind, style = f"reward {reward_text(one.reward)}", "ngp-dot", " " + self.style(one.reward)
        ring = ' aria-current="true"' if current else ""
        title = escape(f"{number}{said}")
        return f'<a href="{escape(at.query())}" class="{kind}" title="{title}" aria-label="{title}"{style}{ring}></a>'


_MOST_DOTS = 48
_MOST_FIELDS = 3
_NONE = '<span class="ngp-faint">–</span>'
NOUNS = {
    "rollouts": "rollout",
    "inputs": "planned rollout",
    "failures": "failure",
    "profile": "task",
    "dataset": "task",
    "other": "row",
}


@dataclass(frozen=True)
class Column:
    """A column of the table: what it is sorted by, its heading, and its cells as HTML."""

    sort: str
    title: str
    cell: Callable[[Any], str]
    kind: str = ""
    """`number`: to the right; `preview`, `field`: cut off where it is long; `wide`: left out on narrow screens."""


@dataclass(frozen=True)
class Listing:
    """What the Browse tab shows, and whether a search is still going on."""

    html: str
    complete: bool


def noun(file: OpenFile) -> str:
    """What a row of the file is."""
    return NOUNS[file.index.kind]


def listing(file: OpenFile, place: Place, *, budget_s: float = 0.25) -> Listing:
    """The page of the table that a place stands for."""
    if place.grouped:
        return _list_tasks(file, place, budget_s)
    browser = file.browser
    results = browser.results(place.filters, place.sort or "file", place.descending, budget_s=budget_s)
    page = browser.page(results, place.page)
    said = _Said(results.total, results.complete, results.searched, page.number, page.n_pages, noun(file))
    if not page.items:
        return Listing(_nothing(file, place, said), results.complete)
    columns = columns_of(file, page.items, place.columns)
    head = "".join(_heading(place, column) for column in columns)
    body = "".join(_row(place, columns, one) for one in page.items)
    return Listing(_framed(place, said, head, body), results.complete)


def columns_of(file: OpenFile, rows: Sequence[RowSummary], chosen: Sequence[str] = ()) -> list[Column]:
    """The columns that say something about these rows, and the fields that were chosen."""
    scale = RewardScale.of(file.browser)
    choices = file.browser.choices()
    columns = [Column("task", "Task", lambda one: escape(one.task_label), "number")]
    if file.index.kind in ("rollouts", "inputs", "failures"):
        columns.append(Column("rollout", "Rollout", lambda one: str(one.rollout), "number"))
    if file.index.kind == "failures":
        columns.append(Column("failure", "Failure", scale.outcome))
    elif any(one.outcome != "unscored" for one in rows):
        columns.append(Column("reward", "Reward", scale.outcome, "number"))
    if any(one.has_tool_error or one.is_cut_off for one in rows):
        columns.append(Column("", "Trouble", _troubles))
    if len(choices.agents) > 1:
        columns.append(Column("agent", "Agent", lambda one: escape(one.agent or "") or _NONE, "wide"))
    columns += [_field(name, choices.fields) for name in chosen or choices.fields[:_MOST_FIELDS]]
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
        columns.append(Column("tool_calls", "Tool calls", _tool_calls, "number wide"))
    if any(one.output_tokens is not None for one in rows):
        columns.append(Column("output_tokens", "Tokens", _tokens, "number wide"))
    elif any(one.length for one in rows):
        columns.append(Column("length", "Length", lambda one: short(one.length), "number wide"))
    return columns


def _clip(text: str) -> str:
    return f'<span title="{escape(text)}">{escape(text)}</span>' if text else _NONE


def _troubles(one: RowSummary) -> str:
    badges = [tag("span", "ngp-badge is-bad", "crashed tool")] if one.has_tool_error else []
    badges += [tag("span", "ngp-badge is-mid", "cut off")] if one.is_cut_off else []
    return " ".join(badges) or _NONE


def _field(name: str, numbers: Sequence[str]) -> Column:
    """A field of the row or its task; what is a number in the index can be sorted by."""

    def cell(one: RowSummary) -> str:
        value = one.fields.get(name)
        return reward_text(value) if value is not None else escape(one.preview.fields.get(name, "")) or _NONE

    return Column(name, name, cell, "number wide") if name in numbers else Column("", name, cell, "field wide")


def _tool_calls(one: RowSummary) -> str:
    return f'<span title="{escape(", ".join(one.tools))}">{one.tool_calls}</span>'


def _tokens(one: RowSummary) -> str:
    if one.output_tokens is None:
        return _NONE
    read = "" if one.input_tokens is None else f"{count(one.input_tokens)} read, "
    return f'<span title="{read}{count(one.output_tokens)} written">{short(one.output_tokens)}</span>'


def _heading(place: Place, column: Column) -> str:
    if not column.sort:
        return f'<th scope="col" class="{column.kind}">{escape(column.title)}</th>'
    sorted_by_it = place.sort == column.sort
    order = ("descending" if place.descending else "ascending") if sorted_by_it else "none"
    then = place.at(sort=column.sort, descending=sorted_by_it and not place.descending, page=0)
    return f'<th scope="col" class="{column.kind}" aria-sort="{order}">{link(then, escape(column.title))}</th>'


def _cell(column: Column, html: str) -> str:
    """A cell that knows its heading, for screens that are too narrow for columns."""
    return f'<td class="{column.kind}" data-label="{escape(column.title)}">{html}</td>'


def _row(place: Place, columns: Sequence[Column], one: RowSummary) -> str:
    at = place.at(tab="rollout", row=one.row)
    first, *rest = columns
    cells = [_cell(first, link(at, first.cell(one))), *(_cell(column, column.cell(one)) for column in rest)]
    current = ' class="is-current"' if one.row == place.row else ""
    return f'<tr data-row="{one.row}" data-href="{escape(at.query())}"{current}>{"".join(cells)}</tr>'


# --- the repeats of a task together ----------------------------------------------------------------------------------


def _list_tasks(file: OpenFile, place: Place, budget_s: float) -> Listing:
    """Tasks, worst first unless something else is chosen; a task leads to its rollouts."""
    browser = file.browser
    grouped = browser.groups(place.filters, place.sort or GROUP_SORTS[0], place.descending, budget_s=budget_s)
    page = browser.group_page(grouped, place.page)
    said = _Said(page.total, grouped.complete, grouped.searched, page.number, page.n_pages, "task")
    if not page.groups:
        return Listing(_nothing(file, place, said), grouped.complete)
    columns = _task_columns(file, place, page.groups)
    head = "".join(_heading(place, column) for column in columns)
    body = "".join(
        f'<tr data-task="{group.task}" data-href="{escape(_rollouts_of(place, group).query())}">'
        + "".join(_cell(column, column.cell(group)) for column in columns)
        + "</tr>"
        for group in page.groups
    )
    return Listing(_framed(place, said, head, body) + _never_scored(file), grouped.complete)


def _never_scored(file: OpenFile) -> str:
    """How many tasks are not in the list, since all their rollouts failed."""
    if file.failures is None:
        return ""
    shown, failed = file.index.columns, file.failures.columns
    missing = len(set(failed.task[: failed.n_rows]).difference(shown.task[: shown.n_rows]))
    verb = "has" if missing == 1 else "have"
    text = f"{plural(missing, 'more task')} {verb} no scored rollout: see {escape(file.failures.name)}."
    return tag("p", "ngp ngp-note", text) if missing else ""


def _task_columns(file: OpenFile, place: Place, groups: Sequence[TaskGroup]) -> list[Column]:
    browser, scale = file.browser, RewardScale.of(file.browser)
    columns = [Column("task", "Task", lambda one: link(_rollouts_of(place, one), escape(one.task_label)), "number")]
    if len(browser.choices().agents) > 1:
        columns.append(Column("", "Agent", lambda one: escape(one.agent or "") or _NONE, "wide"))
    columns.append(Column("pass_rate", "Pass rate", _pass_rate, "number"))
    columns.append(Column("rollouts", "Rollouts", lambda one: _repeats(browser, place, scale, one)))
    columns.append(Column("reward", "Mean", lambda one: _mean(scale, one), "number wide"))
    if file.failures is not None:
        columns.append(Column("", "Failed", lambda one: _failed(file, one), "number"))
    columns += [_task_field(name) for name in place.columns]
    columns.append(Column("", "Asked last", lambda one: _clip(one.preview.asked), "preview"))
    if any(one.preview.target for one in groups):
        columns.append(Column("", "Target", lambda one: _clip(one.preview.target), "preview said"))
    return columns


def _task_field(name: str) -> Column:
    return Column("", name, lambda one: escape(one.preview.fields.get(name, "")) or _NONE, "field wide")


def _mean(scale: RewardScale, group: TaskGroup) -> str:
    return _NONE if group.mean_reward is None else scale.chip(group.mean_reward)


def _rollouts_of(place: Place, group: TaskGroup) -> Place:
    agents = (group.agent,) if group.agent else ()
    return place.at(grouped=False, filters=replace(place.filters, task=group.task, agents=agents), sort="", page=0)


def _pass_rate(group: TaskGroup) -> str:
    if group.pass_rate is None:
        return _NONE
    share = f"{group.pass_rate:.0%}"
    return f'<span class="ngp-rate" style="--rate:{group.pass_rate:.3f}"><i></i><b>{share}</b></span>'


def _repeats(browser: Browser, place: Place, scale: RewardScale, group: TaskGroup) -> str:
    rows = [browser.summary(row) for row in group.rows[:_MOST_DOTS]]
    more = len(group.rows) - len(rows)
    return f"{scale.dots(place, rows, place.row)}{f' +{count(more)}' if more else ''}"


def _failed(file: OpenFile, group: TaskGroup) -> str:
    """How many rollouts of a task failed, by the failures file as well."""
    beside = file.failures.columns.task.count(group.task) if file.failures else 0
    n_failed = group.n_failed + beside
    return tag("span", "ngp-badge is-bad", count(n_failed)) if n_failed else _NONE


# --- round the table -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Said:
    total: int
    complete: bool
    searched: float
    page: int
    n_pages: int
    noun: str


def _framed(place: Place, said: _Said, head: str, body: str) -> str:
    table = f'<table class="ngp-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return tag("div", "ngp", _found(place, said), tag("div", "ngp-scroll", table), _pager(place, said))


def _found(place: Place, said: _Said) -> str:
    text = plural(said.total, said.noun) + ("" if place.filters.is_empty else " found")
    parts = [tag("span", "ngp-strong", text)]
    if not said.complete:
        parts.append(f'<progress class="ngp-progress" max="1" value="{said.searched:.3f}"></progress>')
        parts.append(f"searched {said.searched:.0%}")
    if not place.filters.is_empty:
        parts.append(link(place.at(filters=Filters(), page=0), "Clear filters", kind="ngp-quiet"))
    return tag("div", "ngp-found", *parts)


def _pager(place: Place, said: _Said) -> str:
    if said.n_pages <= 1:
        return ""
    before = place.at(page=said.page - 1) if said.page > 0 else None
    after = place.at(page=said.page + 1) if said.page + 1 < said.n_pages else None
    return tag(
        "nav",
        "ngp-pager",
        step(before, "‹ Previous page", "ngp-previous-page"),
        tag("span", "ngp-faint", f"Page {count(said.page + 1)} of {count(said.n_pages)}"),
        step(after, "Next page ›", "ngp-next-page"),
    )


def step(place: Place | None, text: str, name: str, title: str = "") -> str:
    """A button to another place; one that cannot be pressed where there is none."""
    if place is None:
        return f'<span class="ngp-button" aria-disabled="true">{text}</span>'
    return link(place, text, kind="ngp-button", name=name, title=title)


def _nothing(file: OpenFile, place: Place, said: _Said) -> str:
    if not said.complete or not file.progress().complete:
        text = "Nothing found so far."
    elif place.filters.is_empty:
        text = "The file holds no rows that can be shown."
    else:
        text = f"No {said.noun} matches these filters."
    return tag("div", "ngp", _found(place, said), tag("p", "ngp-empty", text))
