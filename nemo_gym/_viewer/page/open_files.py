# SPDX-License-Identifier: Apache-2.0
"""The files that a viewer has open, each with its index, what was asked of it and its overview."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from nemo_gym._viewer.files.file_index import Index, open_index
from nemo_gym._viewer.files.file_overview import Overview, make_overview
from nemo_gym._viewer.files.file_queries import Browser
from nemo_gym._viewer.files.rollout_comparison import FileComparison, compare_files
from nemo_gym._viewer.files.row_selection import Filters
from nemo_gym._viewer.files.run_companions import RunFiles, label_files, open_failures

_REST = 10
"""While a file grows, its overview is made again only after this many times as long as the last one took."""


class OpenFile:
    """One open file."""

    def __init__(
        self,
        index: Index,
        failures: Index | None,
        user_cache_dir: Path | None = None,
        *,
        holds_failures_of_another: bool = False,
    ) -> None:
        self.index = index
        self.failures = failures
        self.name = index.name
        """Tells it from the other open files."""
        self.holds_failures_of_another = holds_failures_of_another
        """It was opened together with the rollouts file whose failures it holds."""
        self.run_files = RunFiles(index, user_cache_dir)
        self.browser = Browser(index, self.run_files)
        self.overview_version: object = None
        """The version of the file that the latest overview is of."""
        self._lock = threading.Lock()
        self._overview: Overview | None = None
        self._due_s = 0.0

    @property
    def version(self) -> tuple[object, ...]:
        """A value that changes when there is more to show."""
        progress = self.index.progress
        n_failures = self.failures.n_rows if self.failures else 0
        return (
            *progress.version,
            progress.complete,
            progress.n_problems,
            n_failures,
            self.run_files.n_planned,
            self.run_files.find_metrics_time(),
        )

    def get_overview(self) -> Overview:
        """Return the overview of the file; of one that grows, it may be some seconds old."""
        with self._lock:
            version = self.version
            if self._overview is None or (version != self.overview_version and monotonic() >= self._due_s):
                began_s = monotonic()
                self._overview = make_overview(self.index, self.failures)
                self.overview_version = version
                self._due_s = monotonic() + _REST * (monotonic() - began_s)
            return self._overview

    def find_repeats(self, row: int) -> Sequence[int]:
        """Return the rows of the same task and agent as `row`, itself among them."""
        one = self.browser.summarize_row(row)
        agents = (one.agent,) if one.agent else ()
        return self.browser.find_rows(Filters(task=one.task, agents=agents), "rollout").items


class OpenFiles:
    """All open files; a context that closes them."""

    def __init__(self, files: Sequence[OpenFile]) -> None:
        self.files = files
        self.runs = [number for number, file in enumerate(files) if not file.holds_failures_of_another]
        """The numbers of the files that were asked for, which can be compared with each other."""
        self._lock = threading.Lock()
        self._comparison: tuple[object, FileComparison] | None = None

    def __enter__(self) -> "OpenFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.index.close()
            file.run_files.close()
            if file.failures:
                file.failures.close()

    def find_number(self, index: Index) -> int | None:
        """Return the number of the file with the same path as `index`; None if it is not open by itself."""
        path = index.path.resolve()
        return next((number for number, file in enumerate(self.files) if file.index.path.resolve() == path), None)

    def compare(self, baseline: int, run: int) -> FileComparison:
        """Match two files by task, as far as both are indexed."""
        left = self.files[baseline]
        right = self.files[run]
        key = (baseline, run, left.version, right.version)
        with self._lock:
            if self._comparison is None or self._comparison[0] != key:
                self._comparison = key, compare_files(left.index, right.index)
            return self._comparison[1]


def open_files(paths: Sequence[Path], *, user_cache_dir: Path | None = None) -> OpenFiles:
    """Open `paths`, and the failures beside them; indexing goes on in the background."""
    with ExitStack() as opened:
        files = []
        for path in paths:
            index = opened.enter_context(open_index(path, user_cache_dir=user_cache_dir))
            failures = open_failures(index, user_cache_dir)
            if failures:
                opened.push(failures)
            files.append(OpenFile(index, failures, user_cache_dir))
        named = {path.resolve() for path in paths}
        beside = [file.failures for file in files if file.failures and file.failures.path.resolve() not in named]
        files += [OpenFile(index, None, user_cache_dir, holds_failures_of_another=True) for index in beside]
        for file, label in zip(files, label_files([file.index.path for file in files]), strict=True):
            file.name = label
        opened.pop_all()
        return OpenFiles(files)
