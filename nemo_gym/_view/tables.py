# SPDX-License-Identifier: Apache-2.0
"""The tables of the Browse tab as HTML: rows one by one, or the repeats of each task together, with a pager."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from nemo_gym._reports.groups import TaskGroup
from nemo_gym._reports.query import Browser, Filters, RowSummary
from nemo_gym._view.links import RewardScale, count, link, plural, reward_text, short, tag
from nemo_gym._view.place import Place
from nemo_gym._view.shelf import OpenFile

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
    cell: Callable[[RowSummary], str]
    kind: str = ""
    """`number`: to the right; `wide`: left out on narrow screens."""


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
        return _tasks(file, place, budget_s)
    browser = file.browser
    results = browser.results(place.filters, place.sort or "file", place.descending, budget_s=budget_s)
    page = browser.page(results, place.page)
    said = _Said(results.total, results.complete, results.searched, page.number, page.n_pages, noun(file))
    if not page.items:
        return Listing(_nothing(file, place, said), results.complete)
    columns = columns_of(file, page.items)
    head = "".join(_heading(place, column) for column in columns)
    body = "".join(_row(place, columns, one) for one in page.items)
    return Listing(_framed(place, said, head, body), results.complete)


def columns_of(file: OpenFile, rows: Sequence[RowSummary]) -> list[Column]:
    """The columns that say something about these rows."""
    scale = RewardScale.of(file.browser)
    choices = file.browser.choices()
    columns = [Column("task", "Task", lambda one: escape(one.task_label), "number")]
    if file.index.kind in ("rollouts", "inputs", "failures"):
        columns.append(Column("rollout", "Rollout", lambda one: str(one.rollout), "number"))
    if file.index.kind == "failures":
        columns.append(Column("failure", "Failure", scale.outcome))
    elif any(one.outcome != "unscored" for one in rows):
        columns.append(Column("reward", "Reward", scale.outcome, "number"))
    if len(choices.agents) > 1:
        columns.append(Column("agent", "Agent", lambda one: escape(one.agent or "") or _NONE, "wide"))
    columns += [_field(name) for name in choices.fields[:_MOST_FIELDS]]
    if choices.finish_reasons:
        columns.append(Column("finish_reason", "Finish", lambda one: escape(one.finish_reason or "") or _NONE, "wide"))
    if choices.tools:
        columns.append(Column("tool_calls", "Tool calls", _tool_calls, "number wide"))
    if any(one.output_tokens is not None for one in rows):
        columns.append(Column("output_tokens", "Tokens", _tokens, "number wide"))
    elif any(one.length for one in rows):
        columns.append(Column("length", "Length", lambda one: short(one.length), "number wide"))
    return [*columns, Column("", "Asked", lambda one: escape(one.preview), "preview")]


def _field(name: str) -> Column:
    def cell(one: RowSummary) -> str:
        value = one.fields.get(name)
        return _NONE if value is None else reward_text(value)

    return Column(name, name, cell, "number wide")


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


def _row(place: Place, columns: Sequence[Column], one: RowSummary) -> str:
    at = place.at(tab="rollout", row=one.row)
    first, *rest = columns
    cells = [f'<td class="{first.kind}">{link(at, first.cell(one))}</td>']
    cells += [f'<td class="{column.kind}">{column.cell(one)}</td>' for column in rest]
    current = ' class="is-current"' if one.row == place.row else ""
    return f'<tr data-row="{one.row}" data-href="{escape(at.query())}"{current}>{"".join(cells)}</tr>'


# --- the repeats of a task together ----------------------------------------------------------------------------------


def _tasks(file: OpenFile, place: Place, budget_s: float) -> Listing:
    browser = file.browser
    grouped = browser.groups(place.filters, place.sort or "task", place.descending, budget_s=budget_s)
    page = browser.group_page(grouped, place.page)
    said = _Said(page.total, grouped.complete, grouped.searched, page.number, page.n_pages, "task")
    if not page.groups:
        return Listing(_nothing(file, place, said), grouped.complete)
    scale, several = RewardScale.of(browser), len(browser.choices().agents) > 1
    headings = [
        ("task", "Task", "number"),
        *([("", "Agent", "wide")] if several else []),
        ("rollouts", "Rollouts", ""),
        ("reward", "Mean", "number"),
        ("pass_rate", "Passed", "number wide"),
        ("", "Asked", "preview"),
    ]
    head = "".join(_heading(place, Column(sort, title, str, kind)) for sort, title, kind in headings)
    body = "".join(_task(browser, place, scale, group, several) for group in page.groups)
    return Listing(_framed(place, said, head, body), grouped.complete)


def _task(browser: Browser, place: Place, scale: RewardScale, group: TaskGroup, several: bool) -> str:
    rows = [browser.summary(row) for row in group.rows[:_MOST_DOTS]]
    more = len(group.rows) - len(rows)
    at = place.at(tab="rollout", row=group.rows[0])
    mean = _NONE if group.mean_reward is None else scale.chip(group.mean_reward)
    passed = _NONE if group.pass_rate is None else f"{group.pass_rate:.0%}"
    cells = [
        f'<td class="number">{link(at, escape(group.task_label))}</td>',
        f'<td class="wide">{escape(group.agent or "") or _NONE}</td>' if several else "",
        f"<td>{scale.dots(place, rows, place.row)}{f' +{count(more)}' if more else ''}</td>",
        f'<td class="number">{mean}</td>',
        f'<td class="number wide">{passed}</td>',
        f'<td class="preview">{escape(group.preview)}</td>',
    ]
    return f'<tr data-task="{group.task}" data-href="{escape(at.query())}">{"".join(cells)}</tr>'


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
