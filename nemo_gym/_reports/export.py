# SPDX-License-Identifier: Apache-2.0
"""A report in a folder that needs nothing else: an overview of each file and a page for each chosen rollout.

No page asks the network for anything, and a browser is told to refuse all scripts but the one that copies text.
"""

import base64
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nemo_gym._reports.compare import compare_files
from nemo_gym._reports.html_elements import SCRIPT, STYLE, Html, element, joined, table
from nemo_gym._reports.html_files import file_comparison_html, overview_html, problems_html
from nemo_gym._reports.html_rollout import rollout_html
from nemo_gym._reports.index import Index, ReportError
from nemo_gym._reports.overview import failures_beside, overview, spread
from nemo_gym._reports.rollout import Preview, Rollout, preview_row, read_rollout
from nemo_gym._reports.row_facts import FAILED, SCORED
from nemo_gym._reports.run_files import RunFiles
from nemo_gym._results.metric_rows import number_text as shown
from nemo_gym._util.files import write_atomically

ROLLOUTS = 100
_GENERATOR = "nemo-gym report"
_INDEX = "index.html"
_PAGES = "rollouts"


@dataclass(frozen=True)
class ExportedReport:
    index: Path
    """The page to open."""
    n_rollouts: int
    size_bytes: int


@dataclass(frozen=True)
class _File:
    index: Index
    run_files: RunFiles
    failures: Index | None = None
    is_beside: bool = False
    """It holds the failures of another one, which shows the overview of both."""


@dataclass(frozen=True)
class _Chosen:
    """A rollout that gets a page."""

    file: int
    row: int

    @property
    def name(self) -> str:
        return f"{self.file + 1}-{self.row}.html"


def export_report(
    named_files: Sequence[Index],
    directory: str | os.PathLike[str],
    *,
    rows: Mapping[int, Sequence[int]] | None = None,
    rollouts: int = ROLLOUTS,
) -> ExportedReport:
    """Write a report on files, and on the failures beside them, into `directory`; waits until they are read.

    `rows`: the rows of each file (by its number) that get a page. A file that is not named there gets `rollouts` pages:
    the best, the worst, failures and a selection between. ReportError if the folder holds anything but a report.
    """
    if not named_files:
        raise ReportError("a report needs at least one file")
    target = Path(directory)
    _require_free(target)
    with ExitStack() as opened:
        files = [_File(index, RunFiles(index), _open_failures(index, opened)) for index in named_files]
        named_paths = {index.path for index in named_files}
        beside = [file.failures for file in files if file.failures and file.failures.path not in named_paths]
        files += [_File(index, RunFiles(index), is_beside=True) for index in beside]
        for file in files:
            opened.callback(file.run_files.close)
            file.index.wait()
        named = rows or {}
        chosen = [
            _Chosen(number, row)
            for number, file in enumerate(files)
            for row in (named[number] if number in named else choose_rows(file.index, rollouts))
        ]
        try:
            return _write(files, chosen, target)
        except OSError as error:
            raise ReportError(
                f"the report in {str(target)!r} could not be written: {error.strerror or error}"
            ) from error


def choose_rows(index: Index, limit: int) -> list[int]:
    """At most `limit` rows: some failures, and scored ones evenly from the worst to the best; in file order."""
    columns = index.columns
    everything = range(columns.n_rows)
    failed = [row for row in everything if columns.flags[row] & FAILED]
    scored = sorted((row for row in everything if columns.flags[row] & SCORED), key=columns.reward.__getitem__)
    if len(everything) <= limit or not (scored or failed):
        return spread(everything, limit)
    failures = spread(failed, max(limit // 4, limit - len(scored)))
    return sorted([*failures, *spread(scored, limit - len(failures))])


def _require_free(target: Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise ReportError(f"{str(target)!r} is a file.\nhint: name a folder for the report")
    page = target / _INDEX
    ours = page.is_file() and _GENERATOR.encode() in page.read_bytes()[:4096]
    if any(target.iterdir()) and not ours:
        raise ReportError(
            f"{str(target)!r} is not empty and holds no earlier report.\n"
            f"hint: name a new folder, or empty this one; nothing was written"
        )


def _open_failures(index: Index, opened: ExitStack) -> Index | None:
    failures = failures_beside(index)
    if failures is not None:
        opened.enter_context(failures).wait()
    return failures


def _write(files: Sequence[_File], chosen: Sequence[_Chosen], target: Path) -> ExportedReport:
    target.mkdir(parents=True, exist_ok=True)
    pages = target / _PAGES
    if pages.is_dir():
        shutil.rmtree(pages)  # of the report before
    size, entries = 0, []
    for place, one in enumerate(chosen):
        file = files[one.file]
        row, planned = file.index.read(one.row), file.run_files.read_planned(one.row)
        rollout = read_rollout(row, planned)
        size += _save(pages / one.name, _rollout_page(file.index, chosen, place, rollout))
        entries.append(_entry(one, rollout, preview_row(row, planned)))
    size += _save(target / _INDEX, _index_page(files, chosen, entries))
    return ExportedReport(target / _INDEX, len(chosen), size)


def _index_page(files: Sequence[_File], chosen: Sequence[_Chosen], entries: Sequence[list[str]]) -> str:
    parts: list[str] = []
    for number, file in enumerate(files):
        index = file.index
        addresses = {one.row: f"{_PAGES}/{one.name}" for one in chosen if one.file == number}
        parts.append(element("h1", index.name))
        parts.append(element("p", str(index.path), class_="ngv-soft"))
        if not file.is_beside:
            parts.append(_overview(file, addresses))
        listed = [entry for one, entry in zip(chosen, entries, strict=True) if one.file == number]
        if listed:
            heading = "Rollouts" if len(listed) == index.n_rows else f"Rollouts ({len(listed)} of {index.n_rows:,})"
            names = ["rollout", "agent", "reward", "asked last", "answer", "target"]
            parts += [element("h2", heading), table(names, listed, numbers=(2,))]
    runs = [file.index for file in files if not file.is_beside]
    if len(runs) > 1:
        parts.append(element("h1", "Compared"))
        parts += [Html(file_comparison_html(compare_files(runs[0], run))) for run in runs[1:]]
    title = " and ".join(index.name for index in runs)
    return _page(title, element("div", *parts, class_="ngv ngv-wide"))


def _overview(file: _File, addresses: Mapping[int, str]) -> Html:
    made = overview_html(overview(file.index, file.failures), addresses.get)
    return joined([Html(made), Html(problems_html(file.index.problems(), file.index.progress().n_problems))])


def _entry(one: _Chosen, rollout: Rollout, preview: Preview) -> list[str]:
    score = rollout.failure.kind if rollout.failure else "" if rollout.reward is None else shown(rollout.reward)
    mood = "bad" if rollout.failure or (rollout.reward or 0) <= 0 else "good" if (rollout.reward or 0) >= 1 else ""
    title = rollout.title if rollout.task is not None else f"{rollout.title} {one.row + 1}"
    badges = [element("span", score, class_=f"ngv-badge {mood}")] if score else []
    badges += [element("span", "cut off", class_="ngv-badge mid")] if rollout.cut_off else []
    badges += [element("span", "crashed tool", class_="ngv-badge bad")] if rollout.tool_errors else []
    return [
        element("a", title, href=f"{_PAGES}/{one.name}"),
        rollout.agent or "",
        joined(badges),
        *(
            element("span", text, class_="ngv-clip", title=text)
            for text in (preview.asked, preview.answer, preview.target)
        ),
    ]


def _rollout_page(index: Index, chosen: Sequence[_Chosen], place: int, rollout: Rollout) -> str:
    links = [element("a", "Overview", href=f"../{_INDEX}"), element("span", index.name, class_="ngv-soft")]
    beside = (("prev", "‹ Previous", place - 1), ("next", "Next ›", place + 1))
    steps = [
        element("a", label, href=chosen[other].name, rel=rel)
        for rel, label, other in beside
        if 0 <= other < len(chosen)
    ]
    navigation = element("nav", *links, element("span", class_="ngv-push"), *steps, class_="ngv-nav")
    content = element("div", navigation, class_="ngv") + rollout_html(rollout)
    return _page(f"{rollout.title} · {index.name}", Html(content))


def _page(title: str, content: Html) -> str:
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
    return f'<!doctype html>\n<html lang="en">{element("head", *head)}{body}</html>\n'


def _save(path: Path, page: str) -> int:
    content = page.encode()
    write_atomically(path, content)
    return len(content)
