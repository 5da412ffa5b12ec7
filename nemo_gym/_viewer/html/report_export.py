# SPDX-License-Identifier: Apache-2.0
"""Write a self-contained report into a folder: an overview of each file and a page for each chosen rollout.

No page loads anything from the network, and browsers are told to refuse all scripts except the one that copies text.
"""

import base64
import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nemo_gym._results.metrics.describe import format_number
from nemo_gym._util.atomic_files import write_atomically
from nemo_gym._viewer.files.file_index import Index, ReportError
from nemo_gym._viewer.files.file_overview import make_overview
from nemo_gym._viewer.files.one_rollout import Preview, Rollout, preview_row, read_rollout
from nemo_gym._viewer.files.rollout_comparison import compare_files
from nemo_gym._viewer.files.row_facts import FAILED, SCORED
from nemo_gym._viewer.files.row_selection import pick_evenly
from nemo_gym._viewer.files.run_companions import RunFiles, label_files, open_failures
from nemo_gym._viewer.html.elements import SCRIPT, STYLE, Html, element, join, list_classes, table
from nemo_gym._viewer.html.file_pages import render_file_comparison, render_overview, render_problems
from nemo_gym._viewer.html.rollout_page import render_rollout

ROLLOUTS = 100
_GENERATOR = "nemo-gym report"
_INDEX = "index.html"
_PAGES = "rollouts"


@dataclass(frozen=True)
class ExportedReport:
    """What was written."""

    index: Path
    """The page to open."""
    n_rollouts: int
    size_bytes: int


@dataclass
class _ReportedFile:
    index: Index
    run_files: RunFiles
    failures: Index | None
    holds_failures_of_another: bool
    """Whether it holds the failures of another file, which shows the overview of both."""
    name: str = ""
    """Tells it from the other files of the report."""


class _ChosenRow(NamedTuple):
    """A row that gets a page."""

    file: int
    row: int

    @property
    def name(self) -> str:
        return f"{self.file + 1}-{self.row}.html"


def export_report(
    named_files: Sequence[Index], directory: str | os.PathLike[str], *, rollouts: int = ROLLOUTS
) -> ExportedReport:
    """Write a report on files, and on the failures beside them, into `directory`; wait until they are read.

    Each file gets `rollouts` pages: the best, the worst, failures and a selection in between. Raise ReportError if the
    folder holds anything but a report.
    """
    if not named_files:
        raise ReportError("a report needs at least one file")
    target = Path(directory)
    if target.exists() and not target.is_dir():
        raise ReportError(f"{str(target)!r} is a file.\nhint: name a folder for the report")
    page = target / _INDEX
    is_ours = page.is_file() and _GENERATOR.encode() in page.read_bytes()[:4096]
    if target.exists() and any(target.iterdir()) and not is_ours:
        raise ReportError(
            f"{str(target)!r} is not empty and holds no earlier report.\n"
            f"hint: name a new folder, or empty this one; nothing was written"
        )
    with ExitStack() as opened:
        files = []
        for index in named_files:
            failures = open_failures(index)
            if failures is not None:
                opened.enter_context(failures).wait()
            files.append(_ReportedFile(index, RunFiles(index), failures, holds_failures_of_another=False))
        paths = {index.path for index in named_files}
        beside = [file.failures for file in files if file.failures and file.failures.path not in paths]
        files += [_ReportedFile(index, RunFiles(index), None, holds_failures_of_another=True) for index in beside]
        for file, label in zip(files, label_files([file.index.path for file in files]), strict=True):
            file.name = label
            opened.callback(file.run_files.close)
            file.index.wait()
        chosen = [
            _ChosenRow(number, row) for number, file in enumerate(files) for row in choose_rows(file.index, rollouts)
        ]
        try:
            return _write_report(files, chosen, target)
        except OSError as error:
            raise ReportError(
                f"the report in {str(target)!r} could not be written: {error.strerror or error}"
            ) from error


def choose_rows(index: Index, limit: int) -> list[int]:
    """Choose at most `limit` rows: some failures, and scored ones evenly from worst to best; in file order."""
    columns = index.columns
    everything = range(columns.n_rows)
    failed = [row for row in everything if columns.flags[row] & FAILED]
    scored = sorted((row for row in everything if columns.flags[row] & SCORED), key=columns.reward.__getitem__)
    if len(everything) <= limit or not (scored or failed):
        return pick_evenly(everything, limit)
    failures = pick_evenly(failed, max(limit // 4, limit - len(scored)))
    return sorted([*failures, *pick_evenly(scored, limit - len(failures))])


def _write_report(files: Sequence[_ReportedFile], chosen: Sequence[_ChosenRow], target: Path) -> ExportedReport:
    target.mkdir(parents=True, exist_ok=True)
    pages = target / _PAGES
    if pages.is_dir():
        shutil.rmtree(pages)  # from an earlier report
    size = 0
    entries = []
    for position, one in enumerate(chosen):
        file = files[one.file]
        row = file.index.read_row(one.row)
        planned = file.run_files.read_planned(one.row)
        rollout = read_rollout(row, planned)
        content = join([_make_navigation(file.name, chosen, position), render_rollout(rollout)])
        size += _write_page(pages / one.name, f"{rollout.title} · {file.name}", content)
        entries.append(_list_entry_cells(one, rollout, preview_row(row, planned)))
    runs = [file.index for file in files if not file.holds_failures_of_another]
    parts = [part for number in range(len(files)) for part in _render_file(files[number], number, chosen, entries)]
    if len(runs) > 1:
        parts.append(element("h1", "Compared"))
        parts += [render_file_comparison(compare_files(runs[0], run)) for run in runs[1:]]
    title = " and ".join(file.name for file in files if not file.holds_failures_of_another)
    size += _write_page(target / _INDEX, title, element("div", *parts, class_="ngv ngv-wide"))
    return ExportedReport(target / _INDEX, len(chosen), size)


def _render_file(
    file: _ReportedFile, number: int, chosen: Sequence[_ChosenRow], entries: Sequence[list[str]]
) -> list[Html]:
    """Render what the first page says about a file."""
    index = file.index
    parts = [element("h1", file.name), element("p", str(index.path), class_="ngv-soft")]
    if not file.holds_failures_of_another:
        addresses = {one.row: f"{_PAGES}/{one.name}" for one in chosen if one.file == number}
        parts.append(render_overview(make_overview(index, file.failures), addresses.get))
        parts.append(render_problems(index.problems, index.progress.n_problems))
    listed = [entry for one, entry in zip(chosen, entries, strict=True) if one.file == number]
    if listed:
        heading = "Rollouts" if len(listed) == index.n_rows else f"Rollouts ({len(listed)} of {index.n_rows:,})"
        names = ["rollout", "agent", "reward", "last user message", "answer", "target"]
        parts += [element("h2", heading), table(names, listed, numbers=(2,))]
    return parts


def _list_entry_cells(one: _ChosenRow, rollout: Rollout, preview: Preview) -> list[str]:
    badges = []
    if rollout.outcome == "not run":
        badges.append(element("span", rollout.outcome, class_="ngv-badge"))
    elif rollout.failure is not None:
        badges.append(element("span", rollout.failure.kind, class_="ngv-badge bad"))
    elif rollout.reward is not None:
        classes = list_classes("ngv-badge", bad=rollout.reward <= 0, good=rollout.reward >= 1)
        badges.append(element("span", format_number(rollout.reward), class_=classes))
    if rollout.cut_off:
        badges.append(element("span", "cut off", class_="ngv-badge mid"))
    if rollout.tool_errors:
        badges.append(element("span", "crashed tool", class_="ngv-badge bad"))
    title = rollout.title
    if rollout.task is None:
        title = f"{title} {one.row + 1}"
    texts = (preview.asked, preview.answer, preview.target)
    return [
        element("a", title, href=f"{_PAGES}/{one.name}"),
        rollout.agent or "",
        join(badges),
        *(element("span", text, class_="ngv-clip", title=text) for text in texts),
    ]


def _make_navigation(name: str, chosen: Sequence[_ChosenRow], position: int) -> Html:
    links = [element("a", "Overview", href=f"../{_INDEX}"), element("span", name, class_="ngv-soft")]
    beside = (("prev", "‹ Previous", position - 1), ("next", "Next ›", position + 1))
    steps = [
        element("a", label, href=chosen[other].name, rel=rel)
        for rel, label, other in beside
        if 0 <= other < len(chosen)
    ]
    navigation = element("nav", *links, element("span", class_="ngv-push"), *steps, class_="ngv-nav")
    return element("div", navigation, class_="ngv")


def _write_page(path: Path, title: str, content: Html) -> int:
    """Write a whole page; return its size in bytes."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="generator", content=_GENERATOR),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(STYLE)),
    ]
    body = element("body", content, element("script", Html(SCRIPT)), class_="ngv-page")
    page = f'<!doctype html>\n<html lang="en">{element("head", *head)}{body}</html>\n'.encode()
    write_atomically(path, page)
    return len(page)
