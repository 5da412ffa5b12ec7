# SPDX-License-Identifier: Apache-2.0
"""The parts of the page besides the lists, as HTML: the header with its tabs, one rollout, two beside each other.

Locations are completed here too: a link may name a row that does not exist, or lack one that a tab needs.
"""

from collections.abc import Iterator, Sequence

from nemo_gym._viewer.files.file_overview import FailureCount
from nemo_gym._viewer.files.file_queries import Results
from nemo_gym._viewer.files.one_rollout import Rollout, read_rollout
from nemo_gym._viewer.files.rollout_comparison import TaskMatch, compare_rollouts
from nemo_gym._viewer.files.row_selection import GROUP_SORTS, SORTS, Filters
from nemo_gym._viewer.html.elements import Html, element, format_count, join
from nemo_gym._viewer.html.file_pages import (
    render_file_comparison,
    render_overview,
    render_problems,
    render_rollout_diff,
)
from nemo_gym._viewer.html.rollout_page import render_rollout
from nemo_gym._viewer.page.list_tables import (
    RewardScale,
    count_rows,
    format_reward,
    make_badge,
    make_link,
    render_chips,
    render_empty,
    render_progress,
    render_step,
)
from nemo_gym._viewer.page.location import Location, RowRef
from nemo_gym._viewer.page.open_files import OpenFile, OpenFiles

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
_WAIT_S = 2.0
"""How long a link to a row waits for the index to get there."""
_THEME_BUTTON = element(
    "button",
    "◐",
    type="button",
    class_="ngp-theme",
    data_theme_switch=True,
    title="Light or dark",
    aria_label="Switch between light and dark",
)


def complete_location(files: OpenFiles, location: Location) -> Location:
    """Return `location` without what the open files do not have, and with what its tab needs."""
    last = len(files.files) - 1
    location = location.change(file=min(location.file, last))
    if location.against is not None and location.against not in files.runs:
        location = location.change(against=None)
    beside = location.beside
    if beside is not None and (beside.file > last or not _wait_for_row(files.files[beside.file], beside.row)):
        location = location.change(beside=None)
    file = files.files[location.file]
    is_missing = location.row is not None and not _wait_for_row(file, location.row)
    # The page of a rollout waits for its row while the file is still being read.
    if is_missing and (file.index.progress.complete or location.tab != "rollout"):
        location = location.change(row=None, beside=None)
    sorts = GROUP_SORTS if location.grouped else (*SORTS, *file.browser.list_choices().fields)
    if location.sort not in ("", *sorts):
        location = location.change(sort="", descending=False)
    if location.tab == "rollout" and location.row is None:
        rows = _find_listed_rows(file, location).items
        return location.change(row=next(iter(rows), None))
    if location.tab == "compare" and location.beside is None and not _can_compare_files(files, location):
        return _choose_two_rollouts(files, location)
    return location


def _wait_for_row(file: OpenFile, row: int) -> bool:
    file.index.wait_for_rows(row + 1, _WAIT_S)
    return row < file.index.n_rows


def _find_listed_rows(file: OpenFile, location: Location) -> Results[Sequence[int]]:
    sort = location.sort or "file"
    if location.grouped:
        sort = "task"
    return file.browser.find_rows(location.filters, sort, location.descending)


# --- the file as a whole ----------------------------------------------------------------------------------------------


def render_header(files: OpenFiles, location: Location) -> Html:
    """Render the name of the file, how much of it is read, and the tabs."""
    file = files.files[location.file]
    chips = None
    if len(files.files) > 1:
        tab = "browse" if location.tab == "rollout" else location.tab
        there = [(number, Location(tab=tab, file=number)) for number in range(len(files.files))]
        chips = render_chips("File", (_link_file(files, one, number, location.file) for number, one in there))
    title = element(
        "div",
        element("h1", file.name, title=str(file.index.path)),
        element("span", _KINDS[file.index.kind], class_="ngp-badge"),
        _render_state(file, location),
        _THEME_BUTTON,
        class_="ngp-title",
    )
    about = None
    if run := file.run_files.describe():
        about = element("p", run.headline, class_="ngp-run")
    tabs = element("nav", *_iter_tabs(location), class_="ngp-tabs")
    return element("header", title, about, chips, tabs, class_="ngp ngp-header")


def _iter_tabs(location: Location) -> Iterator[Html]:
    current: str = location.tab
    if location.tab == "browse" and location.grouped:
        current = "tasks"
    for name, title in _TABS.items():
        there = location
        if name in ("tasks", "browse"):
            there = there.change(tab="browse", grouped=name == "tasks")
            if name != current:
                there = there.change(page=0)
        else:
            there = there.change(tab=name)
        yield make_link(there, title, class_="ngp-tab", current=name == current)


def _link_file(files: OpenFiles, there: Location, number: int, chosen: int) -> Html:
    return make_link(there, files.files[number].name, class_="ngp-chip", current=number == chosen)


def _render_state(file: OpenFile, location: Location) -> Html:
    progress = file.index.progress
    parts = [element("span", count_rows(file, progress.n_rows), class_="ngp-strong")]
    if progress.error:
        parts.append(make_badge(progress.error))
    elif not progress.complete:
        parts.append(render_progress(progress.share))
        parts.append(element("span", f"reading {progress.share:.0%}", class_="ngp-faint"))
    if progress.n_problems:
        said = format_count(progress.n_problems, "broken line")
        there = location.change(tab="overview")
        parts.append(make_link(there, said, class_="ngp-badge is-bad", title="What is wrong with them"))
    if progress.torn:
        parts.append(element("span", "last line incomplete", class_="ngp-faint"))
    return element("div", *parts, class_="ngp-state")


def render_overview_tab(files: OpenFiles, location: Location) -> Html:
    """Render the agents to choose from, then all numbers and charts, failures, and lines that could not be read."""
    file = files.files[location.file]
    report = file.get_overview()
    progress = file.index.progress
    if not report.n_rows and report.complete:
        return render_empty("The file holds no rows that can be shown.")
    chosen = next((one for one in report.agents if one.agent == location.agent), next(iter(report.agents), None))
    chips = note = None
    if len(report.agents) > 1:
        agents = (
            make_link(location.change(agent=one.agent), one.agent, class_="ngp-chip", current=one is chosen)
            for one in report.agents
        )
        chips = element("div", render_chips("Agent", agents), class_="ngp")

    def link_failures(kind: FailureCount) -> str | None:
        number: int | None = location.file
        if kind.in_failures_file and file.failures:
            number = files.find_number(file.failures)
        if number is None:
            return None
        return Location(tab="browse", file=number, filters=Filters(failure_kind=kind.kind)).to_query()

    overview = render_overview(report, agent=chosen, link_failures=link_failures)
    if not report.complete:
        note = element("p", f"So far: {count_rows(file, report.n_rows)} read.", class_="ngp ngp-note")
    return join([chips, overview, render_problems(file.index.problems, progress.n_problems), note])


# --- one rollout ------------------------------------------------------------------------------------------------------


def render_rollout_bar(file: OpenFile, location: Location) -> Html:
    """Render where a rollout stands among the others, with links to its neighbors."""
    if location.row is None:
        return Html()
    beside = file.browser.find_neighbors(_find_listed_rows(file, location), location.row)
    before, after = (None if row is None else location.change(row=row) for row in (beside.previous, beside.next))
    position = "not among those that the filters leave"
    if beside.position is not None:
        position = f"{beside.position + 1:,} of {beside.total:,}"
    steps = element(
        "div",
        render_step(before, "ngp-previous", "‹ ", element("span", "Previous"), " ", element("kbd", "k")),
        element("span", position, class_="ngp-faint"),
        render_step(after, "ngp-next", element("kbd", "j"), " ", element("span", "Next"), " ›"),
        class_="ngp-steps",
    )
    rows = file.find_repeats(location.row)
    repeats = None
    if len(rows) > 1:
        label = element("span", f"{len(rows)} rollouts of this task", class_="ngp-label")
        dots = RewardScale(file).render_dots(location, rows, _MOST_DOTS)
        repeats = element("div", label, dots, class_="ngp-repeats")
    actions = [make_link(location.change(tab="browse"), "Back to the list", class_="ngp-quiet")]
    if other := _find_most_different(file, location.row, rows):
        there = location.change(tab="compare", beside=RowRef(location.file, other))
        actions.append(make_link(there, "Compare", class_="ngp-quiet"))
    actions.append(element("button", "Copy link", type="button", class_="ngp-quiet", data_copy_link=True))
    return element("div", steps, repeats, element("div", *actions, class_="ngp-actions"), class_="ngp ngp-bar")


def render_rollout_tab(file: OpenFile, row: int) -> Html:
    """Render a rollout in full."""
    return render_rollout(_read_rollout(file, row))


def _read_rollout(file: OpenFile, row: int) -> Rollout:
    return read_rollout(file.index.read_row(row), file.run_files.read_planned(row))


def _find_most_different(file: OpenFile, row: int, rows: Sequence[int]) -> int | None:
    """Return the repeat that differs most in reward, the first of equals."""
    reward = file.browser.summarize_row(row).reward or 0
    others = [file.browser.summarize_row(other) for other in rows if other != row]
    if not others:
        return None
    return max(others, key=lambda other: abs((other.reward or 0) - reward)).row


# --- two beside each other --------------------------------------------------------------------------------------------


def render_compare_tab(files: OpenFiles, location: Location) -> Html:
    """Render two rollouts of a task, or two files."""
    modes = None
    if _can_compare_files(files, location):
        of_files = location.change(beside=None, against=_choose_run(location))
        of_rollouts = location
        if location.beside is None:
            of_rollouts = _choose_two_rollouts(files, location)
        choices = [(of_files, "Files", location.beside is None), (of_rollouts, "Rollouts", location.beside is not None)]
        links = (make_link(there, name, class_="ngp-chip", current=current) for there, name, current in choices)
        modes = render_chips("Compare", links)
        if location.beside is None:
            return join([element("div", modes, class_="ngp"), _render_two_files(files, location)])
    if location.row is None or location.beside is None:
        text = "There are no two rollouts of one task to compare."
        return element("div", modes, element("p", text, class_="ngp-empty"), class_="ngp")
    left = RowRef(location.file, location.row)
    right = location.beside
    choose = element(
        "div",
        _render_choice(files, location, "Left", left, right),
        _render_choice(files, location, "Right", right, left),
        class_="ngp-choose",
    )
    text = "To the first difference"
    jump = element("button", text, type="button", class_="ngp-button", data_first_difference=True)
    diff = compare_rollouts(*(_read_rollout(files.files[one.file], one.row) for one in (left, right)))
    return join([element("div", modes, choose, jump, class_="ngp"), render_rollout_diff(diff)])


def _can_compare_files(files: OpenFiles, location: Location) -> bool:
    return len(files.runs) > 1 and location.file in files.runs


def _choose_run(location: Location) -> int:
    """Return the file to compare with: the one that was chosen, or the first other one."""
    if location.against is None:
        return int(location.file == 0)
    return location.against


def _choose_two_rollouts(files: OpenFiles, location: Location) -> Location:
    """Return `location` with two rollouts to compare, where none were chosen and there are some."""
    file = files.files[location.file]
    row = location.row
    if row is None:
        grouped = file.browser.find_groups(location.filters, "task", False)
        repeated = [group for group in file.browser.read_group_page(grouped, 0, 50).items if len(group.rows) > 1]
        if not repeated:
            return location
        row = min(repeated, key=lambda group: (group.min_reward or 0) - (group.max_reward or 0)).rows[0]
    other = _find_most_different(file, row, file.find_repeats(row))
    if other is None:
        return location
    return location.change(row=row, beside=RowRef(location.file, other))


def _render_choice(files: OpenFiles, location: Location, label: str, chosen: RowRef, other: RowRef) -> Html:
    """Render the rollouts of the task that may stand on one side: those of every agent in every open file."""
    task = files.files[chosen.file].browser.summarize_row(chosen.row).task
    lines: dict[str, list[Html]] = {}
    for number, file in enumerate(files.files):
        if file.index.kind not in ("rollouts", "failures"):
            continue
        scale = RewardScale(file)
        for row in file.browser.find_rows(Filters(task=task), "rollout").items[:_MOST_DOTS]:
            one = file.browser.summarize_row(row)
            ref = RowRef(number, row)
            if label == "Left":
                there = location.change(file=number, row=row, beside=other)
            else:
                there = location.change(file=other.file, row=other.row, beside=ref)
            said = one.failure_kind or one.outcome
            if one.reward is not None:
                said = f"reward {format_reward(one.reward)}"
            title = f"rollout {one.rollout}, {said}"
            content = (f"#{one.rollout} ", scale.render_outcome(one))
            name = [label, file.name, one.agent] if len(files.files) > 1 else [label, one.agent]
            chip = make_link(there, *content, class_="ngp-chip", title=title, current=ref == chosen)
            lines.setdefault(" · ".join(filter(None, name)), []).append(chip)
    return element("div", *(render_chips(name, items) for name, items in lines.items()), class_="ngp-side")


def _render_two_files(files: OpenFiles, location: Location) -> Html:
    baseline = location.file
    run = _choose_run(location)
    choose = None
    if len(files.runs) > 2:
        baselines = (_link_file(files, location.change(file=one, against=run), one, baseline) for one in files.runs)
        runs = (_link_file(files, location.change(against=one), one, run) for one in files.runs)
        chips = render_chips("Baseline", baselines), render_chips("Run", runs)
        choose = element("div", *chips, class_="ngp ngp-choose")
    waiting = [files.files[one].name for one in (baseline, run) if not files.files[one].index.progress.complete]
    if waiting:
        return join([choose, render_empty(f"Still reading {', '.join(waiting)}: the comparison follows.")])

    def link_match(match: TaskMatch) -> str:
        return location.change(row=match.baseline_row, beside=RowRef(run, match.run_row)).to_query()

    return join([choose, render_file_comparison(files.compare(baseline, run), link=link_match)])
