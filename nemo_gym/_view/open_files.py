# SPDX-License-Identifier: Apache-2.0
"""The files that a viewer has open, each with its index, what was asked of it and its overview."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from nemo_gym._reports.compare import FileComparison, compare_files
from nemo_gym._reports.index import Index, Progress, open_index
from nemo_gym._reports.overview import Overview, failures_beside, overview
from nemo_gym._reports.query import Browser, Filters
from nemo_gym._reports.run_files import RunFiles

_REST = 10
"""While a file grows, an overview is computed again after this many times the time that it took."""


class OpenFile:
    """One file of the shelf."""

    def __init__(
        self, index: Index, failures: Index | None, user_cache_dir: Path | None = None, *, is_beside: bool = False
    ) -> None:
        self.index, self.failures = index, failures
        self.is_beside = is_beside
        """It holds the failures of another file of the shelf, and was opened with that."""
        self.run_files = RunFiles(index, user_cache_dir)
        self.browser = Browser(index, self.run_files)
        self._lock = threading.Lock()
        self._overview: Overview | None = None
        self._of: object = None
        self._due_s = 0.0

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return self.index.name

    def progress(self) -> Progress:
        """How much of it is indexed."""
        return self.index.progress()

    def version(self) -> tuple[object, ...]:
        """Something that changes when there is more to show."""
        progress = self.progress()
        beside = self.failures.n_rows if self.failures else 0
        return (*progress.version, progress.complete, progress.n_problems, beside, self.run_files.n_planned)

    def overview(self) -> Overview:
        """Its overview; of a file that grows, one that may be some seconds old."""
        with self._lock:
            version = self.version()
            if self._overview is None or (version != self._of and monotonic() >= self._due_s):
                began_s = monotonic()
                self._overview, self._of = overview(self.index, self.failures), version
                self._due_s = monotonic() + _REST * (monotonic() - began_s)
            return self._overview

    def overview_version(self) -> object:
        """What of the file the latest overview has seen."""
        return self._of

    def repeats(self, row: int) -> Sequence[int]:
        """The rows of the task that `row` is of, itself among them."""
        one = self.browser.summary(row)
        agents = (one.agent,) if one.agent else ()
        return self.browser.results(Filters(task=one.task, agents=agents), "rollout").rows


class Shelf:
    """All open files; a context that closes them."""

    def __init__(self, files: Sequence[OpenFile]) -> None:
        self.files = files
        self._lock = threading.Lock()
        self._compared: dict[tuple[object, ...], FileComparison] = {}

    @classmethod
    def of(cls, paths: Sequence[Path], *, user_cache_dir: Path | None = None) -> "Shelf":
        """Open `paths`; indexing goes on in the background."""
        with ExitStack() as opened:
            files = []
            for path in paths:
                index = opened.enter_context(open_index(path, user_cache_dir=user_cache_dir))
                failures = failures_beside(index, user_cache_dir)
                if failures:
                    opened.push(failures)
                files.append(OpenFile(index, failures, user_cache_dir))
            named = {path.resolve() for path in paths}
            beside = [file.failures for file in files if file.failures and file.failures.path.resolve() not in named]
            files += [OpenFile(index, None, user_cache_dir, is_beside=True) for index in beside]
            opened.pop_all()
            return cls(files)

    def number_of(self, index: Index) -> int | None:
        """The number of the file with the same path as `index`; None if it is not open by itself."""
        path = index.path.resolve()
        return next((number for number, file in enumerate(self.files) if file.index.path.resolve() == path), None)

    @property
    def runs(self) -> list[int]:
        """The numbers of the files that were asked for, which can be compared with each other."""
        return [number for number, file in enumerate(self.files) if not file.is_beside]

    def __enter__(self) -> "Shelf":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.index.close()
            file.run_files.close()
            if file.failures:
                file.failures.close()

    def compared(self, baseline: int, run: int) -> FileComparison:
        """Two files matched by task, as far as both are indexed."""
        left, right = self.files[baseline], self.files[run]
        key = (baseline, run, left.version(), right.version())
        with self._lock:
            if key not in self._compared:
                self._compared = {key: compare_files(left.index, right.index)}
            return self._compared[key]
