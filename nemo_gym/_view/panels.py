# SPDX-License-Identifier: Apache-2.0
"""The parts of the page besides the table, as HTML: the header with its tabs, one rollout, two beside each other."""

from collections.abc import Iterator, Sequence
from html import escape

from nemo_gym._reports.compare import FileComparison, TaskMatch, compare_rollouts
from nemo_gym._reports.html_files import diff_html, file_comparison_html, overview_html, problems_html
from nemo_gym._reports.html_rollout import rollout_html
from nemo_gym._reports.overview import FailureCount
from nemo_gym._reports.query import GROUP_SORTS, SORTS, Filters, Results, RowSummary
from nemo_gym._reports.rollout import Rollout, read_rollout
from nemo_gym._view.location import Place, Spot
from nemo_gym._view.open_files import OpenFile, Shelf
from nemo_gym._view.tables import RewardScale, chips, count, link, noun, plural, reward_text, step, tag

_KINDS = {
    "rollouts": "rollouts",
    "inputs": "materialized inputs",
    "failures": "failures",
    "profile": "profiled tasks",
    "dataset": "dataset",
    "other": "rows",
}
_TABS = {"overview": "Overview", "tasks": "Tasks", "browse": "Rollouts", "rollout": "Rollout", "compare": "Compare"}
_MOST_DOTS = 64


def header(shelf: Shelf, place: Place) -> str:
    """The name of the file, how much of it is read, and the tabs."""
    file = shelf.files[place.file]
    files = ""
    if len(shelf.files) > 1:
        files = chips("File", (_file_chip(shelf, place, number) for number in range(len(shelf.files))))
    title = tag(
        "div",
        "ngp-title",
        f'<h1 title="{escape(str(file.index.path))}">{escape(file.name)}</h1>',
        tag("span", "ngp-badge", _KINDS[file.index.kind]),
        _state(file, place),
        '<button type="button" class="ngp-theme" data-theme-switch title="Light or dark" '
        'aria-label="Switch between light and dark">◐</button>',
    )
    run = file.run_files.describe()
    about = tag("p", "ngp-run", escape(run.headline)) if run else ""
    return tag("header", "ngp ngp-header", title, about, files, tag("nav", "ngp-tabs", *_tabs(place)))


def _tabs(place: Place) -> Iterator[str]:
    shown = ("tasks" if place.grouped else "browse") if place.tab == "browse" else place.tab
    lists = {"tasks": True, "browse": False}
    for name, title in _TABS.items():
        there = place.at(tab=name)
        if name in lists:
            there = place.at(tab="browse", grouped=lists[name], page=place.page if name == shown else 0)
        yield link(there, title, kind="ngp-tab", current=name == shown)


def _file_chip(shelf: Shelf, place: Place, number: int) -> str:
    there = Place(tab="browse" if place.tab == "rollout" else place.tab, file=number)
    return _file(shelf, there, number, place.file)


def _state(file: OpenFile, place: Place) -> str:
    progress = file.progress()
    parts = [tag("span", "ngp-strong", plural(progress.n_rows, noun(file)))]
    if progress.error:
        parts.append(tag("span", "ngp-badge is-bad", escape(progress.error)))
    elif not progress.complete:
        share = progress.share
        parts.append(f'<progress class="ngp-progress" max="1" value="{share:.3f}"></progress>')
        parts.append(tag("span", "ngp-faint", f"reading {share:.0%}"))
    if progress.n_problems:
        said = plural(progress.n_problems, "broken line")
        parts.append(link(place.at(tab="overview"), said, kind="ngp-badge is-bad", title="What is wrong with them"))
    if progress.torn:
        parts.append(tag("span", "ngp-faint", "last line incomplete"))
    return tag("div", "ngp-state", *parts)


# --- the file as a whole ---------------------------------------------------------------------------------------------


def overview_page(shelf: Shelf, place: Place) -> str:
    """The agents to choose from, then all numbers and charts, failures, and lines that could not be read."""
    file = shelf.files[place.file]
    report, progress = file.overview(), file.progress()
    if not report.n_rows and report.complete:
        return tag("div", "ngp", tag("p", "ngp-empty", "The file holds no rows that can be shown."))
    chosen = next((one for one in report.agents if one.agent == place.agent), next(iter(report.agents), None))
    parts = []
    if len(report.agents) > 1:
        agents = (
            link(place.at(agent=one.agent), escape(one.agent), kind="ngp-chip", current=one is chosen)
            for one in report.agents
        )
        parts.append(tag("div", "ngp", chips("Agent", agents)))

    def failures_of(kind: FailureCount) -> str | None:
        number = shelf.number_of(file.failures) if kind.in_failures_file and file.failures else place.file
        there = Place(tab="browse", file=number or 0, filters=Filters(failure_kind=kind.kind))
        return None if number is None else there.query()

    parts.append(overview_html(report, agent=chosen, failures_link=failures_of))
    parts.append(problems_html(file.index.problems(), progress.n_problems))
    if not report.complete:
        parts.append(tag("p", "ngp ngp-note", f"So far: {plural(report.n_rows, noun(file))} read."))
    return "".join(parts)


# --- one rollout -----------------------------------------------------------------------------------------------------


def first_row(file: OpenFile, place: Place) -> int | None:
    """The rollout to show where none was chosen: the first that the filters leave."""
    rows = _listed(file, place).rows
    return rows[0] if len(rows) else None


def _listed(file: OpenFile, place: Place) -> Results:
    sort = place.sort if not place.grouped else "task"
    return file.browser.results(place.filters, sort or "file", place.descending)


def rollout_bar(file: OpenFile, place: Place) -> str:
    """Where a rollout stands among the others, and the way to them."""
    if place.row is None:
        return ""
    beside = file.browser.neighbours(_listed(file, place), place.row)
    one = file.browser.summary(place.row)
    before, after = (None if row is None else place.at(row=row) for row in (beside.previous, beside.next))
    where = "not among those that the filters leave"
    if beside.position is not None:
        where = f"{count(beside.position + 1)} of {count(beside.total)}"
    rows = file.repeats(place.row)
    steps = tag(
        "div",
        "ngp-steps",
        step(before, "‹ <span>Previous</span> <kbd>k</kbd>", "ngp-previous"),
        tag("span", "ngp-faint", where),
        step(after, "<kbd>j</kbd> <span>Next</span> ›", "ngp-next"),
    )
    actions = [link(place.at(tab="browse"), "Back to the list", kind="ngp-quiet")]
    if other := _other(file, one, rows):
        actions.append(link(place.at(tab="compare", beside=Spot(place.file, other)), "Compare", kind="ngp-quiet"))
    actions.append('<button type="button" class="ngp-quiet" data-copy-link>Copy link</button>')
    return tag("div", "ngp ngp-bar", steps, _repeats(file, place, rows), tag("div", "ngp-actions", *actions))


def _repeats(file: OpenFile, place: Place, rows: Sequence[int]) -> str:
    if len(rows) < 2:
        return ""
    scale = RewardScale.of(file.browser)
    shown = [file.browser.summary(row) for row in rows[:_MOST_DOTS]]
    more = f" +{count(len(rows) - len(shown))}" if len(rows) > len(shown) else ""
    label = tag("span", "ngp-label", f"{len(rows)} rollouts of this task")
    return tag("div", "ngp-repeats", label, scale.dots(place, shown, place.row), more)


def _other(file: OpenFile, one: RowSummary, rows: Sequence[int]) -> int | None:
    """The repeat that differs most in reward, the first of equals."""
    others = [file.browser.summary(row) for row in rows if row != one.row]
    return max(others, key=lambda other: abs((other.reward or 0) - (one.reward or 0))).row if others else None


def rollout(file: OpenFile, row: int) -> str:
    """A rollout in full."""
    return rollout_html(_read(file, row))


def _read(file: OpenFile, row: int) -> Rollout:
    return read_rollout(file.index.read(row), file.run_files.read_planned(row))


# --- two beside each other -------------------------------------------------------------------------------------------


def comparison(shelf: Shelf, place: Place) -> str:
    """Two rollouts of a task, or two files."""
    modes = _modes(shelf, place)
    if place.beside is None and _can_compare_files(shelf, place):
        return tag("div", "ngp", modes) + _two_files(shelf, place)
    if place.row is None or place.beside is None:
        text = "There are no two rollouts of one task to compare."
        return tag("div", "ngp", modes, tag("p", "ngp-empty", text))
    left, right = Spot(place.file, place.row), place.beside
    choose = tag(
        "div",
        "ngp-choose",
        _choice(shelf, place, "Left", left, right),
        _choice(shelf, place, "Right", right, left),
    )
    jump = '<button type="button" class="ngp-button" data-first-difference>To the first difference</button>'
    two = [_read(shelf.files[spot.file], spot.row) for spot in (left, right)]
    return tag("div", "ngp", modes, choose, jump) + diff_html(compare_rollouts(*two))


def two_of_a_task(shelf: Shelf, place: Place) -> Place:
    """`place` with two rollouts to compare, where none were chosen and there are some."""
    file = shelf.files[place.file]
    rows = [place.row] if place.row is not None else _repeated(file, place)
    for row in rows:
        other = _other(file, file.browser.summary(row), file.repeats(row))
        if other is not None:
            return place.at(row=row, beside=Spot(place.file, other))
    return place


def _repeated(file: OpenFile, place: Place) -> list[int]:
    grouped = file.browser.groups(place.filters, "task", False)
    page = file.browser.group_page(grouped, 0, 50)
    several = [group for group in page.groups if len(group.rows) > 1]
    several.sort(key=lambda group: (group.min_reward or 0) - (group.max_reward or 0))
    return [group.rows[0] for group in several[:1]]


def _can_compare_files(shelf: Shelf, place: Place) -> bool:
    return len(shelf.runs) > 1 and place.file in shelf.runs


def _modes(shelf: Shelf, place: Place) -> str:
    if not _can_compare_files(shelf, place):
        return ""
    run = place.against if place.against is not None else int(place.file == 0)
    files = place.at(beside=None, against=run)
    rollouts = place if place.beside else two_of_a_task(shelf, place)
    return chips(
        "Compare",
        (
            link(files, "Files", kind="ngp-chip", current=place.beside is None),
            link(rollouts, "Rollouts", kind="ngp-chip", current=place.beside is not None),
        ),
    )


def _choice(shelf: Shelf, place: Place, label: str, chosen: Spot, other: Spot) -> str:
    """The rollouts of the task that may stand on one side: those of every agent in every open file."""
    task = shelf.files[chosen.file].browser.summary(chosen.row).task
    lines: dict[str, list[str]] = {}
    for number, file in enumerate(shelf.files):
        if file.index.kind not in ("rollouts", "failures"):
            continue
        rows, scale = (
            file.browser.results(Filters(task=task), "rollout").rows[:_MOST_DOTS],
            RewardScale.of(file.browser),
        )
        for one in map(file.browser.summary, rows):
            name = " · ".join(filter(None, (file.name if len(shelf.files) > 1 else "", one.agent)))
            item = _side(place, label, Spot(number, one.row), one, chosen, other, scale)
            lines.setdefault(name, []).append(item)
    return tag(
        "div", "ngp-side", *(chips(f"{label} · {name}" if name else label, items) for name, items in lines.items())
    )


def _side(place: Place, label: str, spot: Spot, one: RowSummary, chosen: Spot, other: Spot, scale: RewardScale) -> str:
    said = reward_text(one.reward) if one.reward is not None else (one.failure_kind or one.outcome)
    left, right = (spot, other) if label == "Left" else (other, spot)
    there = place.at(file=left.file, row=left.row, beside=right)
    title = f"rollout {one.rollout}, {said if one.reward is None else f'reward {said}'}"
    shown = f"#{one.rollout} {scale.outcome(one)}"
    return link(there, shown, kind="ngp-chip", title=title, current=spot == chosen)


def _two_files(shelf: Shelf, place: Place) -> str:
    run = place.against if place.against is not None else int(place.file == 0)
    numbers = shelf.runs
    choose = ""
    if len(numbers) > 2:
        choose = tag(
            "div",
            "ngp ngp-choose",
            chips("Baseline", (_file(shelf, place.at(file=one, against=run), one, place.file) for one in numbers)),
            chips("Run", (_file(shelf, place.at(against=one), one, run) for one in numbers)),
        )
    waiting = [shelf.files[number] for number in (place.file, run) if not shelf.files[number].progress().complete]
    if waiting:
        text = f"Still reading {', '.join(file.name for file in waiting)}: the comparison follows."
        return choose + tag("div", "ngp", tag("p", "ngp-empty", escape(text)))
    return choose + _matched(shelf.compared(place.file, run), place, run)


def _file(shelf: Shelf, there: Place, number: int, chosen: int) -> str:
    return link(there, escape(shelf.files[number].name), kind="ngp-chip", current=number == chosen)


def _matched(compared: FileComparison, place: Place, run: int) -> str:
    def there(match: TaskMatch) -> str:
        return place.at(row=match.baseline_row, beside=Spot(run, match.run_row)).query()

    return file_comparison_html(compared, link=there)


_WAIT_S = 2.0
"""How long a link to a row waits for the index to get there."""


def settled(shelf: Shelf, place: Place) -> Place:
    """`place` with what is wrong or missing put right."""
    last = len(shelf.files) - 1
    place = place.at(file=min(place.file, last))
    if place.against is not None and place.against not in shelf.runs:
        place = place.at(against=None)
    beside = place.beside
    if beside is not None and (beside.file > last or not _is_there(shelf.files[beside.file], beside.row)):
        place = place.at(beside=None)
    file = shelf.files[place.file]
    if (
        place.row is not None
        and not _is_there(file, place.row)
        and (file.progress().complete or place.tab != "rollout")
    ):
        place = place.at(row=None, beside=None)
    place = _sorted(file, place)
    if place.tab == "rollout" and place.row is None:
        return place.at(row=first_row(file, place))
    if place.tab == "compare" and place.beside is None and (len(shelf.runs) == 1 or place.file not in shelf.runs):
        return two_of_a_task(shelf, place)
    return place


def _sorted(file: OpenFile, place: Place) -> Place:
    known = GROUP_SORTS if place.grouped else (*SORTS, *file.browser.choices().fields)
    return place if place.sort in ("", *known) else place.at(sort="", descending=False)


def _is_there(file: OpenFile, row: int) -> bool:
    file.index.wait_for_rows(row + 1, _WAIT_S)
    return row < file.index.n_rows
