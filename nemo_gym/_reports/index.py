# SPDX-License-Identifier: Apache-2.0
"""An open file: where each of its rows lies and what it says at a glance, known better and better while a thread reads.

The first rows are there at once, however large the file; rows that a run appends are taken up as they come. Only the
facts of rows are held in memory: a row itself is read from the file when it is asked for.
"""

import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nemo_gym._reports import cache
from nemo_gym._reports.cache import Identity
from nemo_gym._reports.columns import Columns, Scanner
from nemo_gym._reports.columns import LineProblem as LineProblem
from nemo_gym._reports.row_facts import Kind as Kind
from nemo_gym._reports.row_facts import loads_row
from nemo_gym.errors import GymError


class ReportError(GymError, ValueError):
    """A file cannot be shown, or a report cannot be written, as it is asked for."""


LOG = logging.getLogger(__name__)
POLL_S = 1.0
# A smaller file is read faster than its cache would be worth a file in the user's folder.
CACHED_FROM_BYTES = 1 << 22
# Between two slices other threads get their turn: whoever serves the page must not wait for the reader.
_SLICE_BYTES = 1 << 18
_BREATH_S = 0.0002
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True)
class Progress:
    """How far a file has been read."""

    n_rows: int
    bytes_done: int
    bytes_total: int
    complete: bool
    """All that the file held at the last look is there."""
    n_problems: int
    """Broken lines, and the torn last line."""
    torn: bool
    generation: int
    """Grows when the file turned out to be another one and everything was read anew."""
    from_cache: bool
    error: str | None
    """Why the file cannot be read any more."""

    @property
    def share(self) -> float:
        if self.complete:
            return 1.0
        return min(self.bytes_done / self.bytes_total, 1.0) if self.bytes_total else 0.0

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever there are other rows than before."""
        return self.generation, self.n_rows


def open_index(
    path: str | os.PathLike[str], *, user_cache_dir: Path | None = None, follow: bool = True, poll_s: float = POLL_S
) -> "Index":
    """Begin to read `path`, in a thread; returns at once. ReportError if there is no such file.

    `user_cache_dir`: where large files are cached if their own folder cannot be written to. `follow`: go on watching
    the file, every `poll_s` seconds.
    """
    index = Index(Path(path), user_cache_dir=user_cache_dir, follow=follow, poll_s=poll_s)
    index.start()
    return index


class Index:
    """The rows of one file; a context manager that stops reading."""

    def __init__(self, path: Path, *, user_cache_dir: Path | None, follow: bool, poll_s: float) -> None:
        _require_readable(path)
        self.path, self.name = path, path.name
        self._cache_dir, self._follow, self._poll_s = user_cache_dir, follow, poll_s
        self._scanner = Scanner()
        self._identity: Identity | None = None
        self._changed = threading.Condition()
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._complete, self._from_cache, self._generation = False, False, 0
        self._asked = self._answered = 0
        self._kept_to = 0
        self._error: str | None = None
        self._bytes_total = path.stat().st_size
        self._thread = threading.Thread(target=self._run, name=f"index {path.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop reading; what was read stays."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def kind(self) -> Kind:
        return self._scanner.kind

    @property
    def columns(self) -> Columns:
        """The facts of the rows; take it once per task, for a file that is replaced gets new ones."""
        return self._scanner.columns

    @property
    def n_rows(self) -> int:
        return self._scanner.columns.n_rows

    def progress(self) -> Progress:
        with self._changed:
            return self._progress()

    def problems(self) -> list[LineProblem]:
        """The lines that cannot be shown, the first thousand of them."""
        return self._scanner.all_problems()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until all that the file held is there, or it cannot be read; False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(self._ended, timeout_s)

    def wait_for_rows(self, n: int, timeout_s: float) -> bool:
        """Until there are `n` rows, or all that the file held; False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self.n_rows >= n or self._ended(), timeout_s)

    def refresh(self, timeout_s: float = 5.0) -> Progress:
        """Look at the file now instead of at the next poll, and say what is there."""
        with self._changed:
            self._asked += 1
            ticket = self._asked
            self._wake.set()
            self._changed.wait_for(lambda: self._answered >= ticket or not self._thread.is_alive(), timeout_s)
            return self._progress()

    def raw(self, row: int) -> bytes:
        """The line of a row."""
        columns = self.columns
        if not 0 <= row < columns.n_rows:
            raise ReportError(f"{str(self.path)!r} has no row {row}: there are {columns.n_rows} so far, counted from 0")
        try:
            with open(self.path, "rb", buffering=0) as file:
                return os.pread(file.fileno(), columns.size[row], columns.offset[row])
        except OSError as error:
            raise ReportError(f"{str(self.path)!r} cannot be read: {error.strerror}") from error

    def read(self, row: int) -> dict[str, Any]:
        """A row, as it stands in the file."""
        raw = self.raw(row)
        try:
            return loads_row(raw)
        except ValueError as error:
            raise ReportError(
                f"row {row} of {str(self.path)!r} is not what it was: the file has changed.\n"
                f"hint: wait a moment; the file is read anew when it is not merely appended to"
            ) from error

    def find(self, task: int, rollout: int | None = None, agent: str | None = None) -> int | None:
        """The first row of a task, a rollout and an agent, as far as they are given; None if there is none yet."""
        columns, row = self.columns, -1
        wanted = None if agent is None else columns.agents.get(agent)
        while True:
            try:
                row = columns.task.index(task, row + 1, columns.n_rows)
            except ValueError:
                return None
            if rollout in (None, columns.rollout[row]) and (agent is None or columns.agent[row] == wanted):
                return row

    def _ended(self) -> bool:
        return self._complete or self._error is not None or not self._thread.is_alive()

    def _progress(self) -> Progress:
        scanner = self._scanner
        return Progress(
            n_rows=scanner.columns.n_rows,
            bytes_done=scanner.end,
            bytes_total=self._bytes_total,
            complete=self._complete,
            n_problems=scanner.n_problems + (scanner.torn is not None),
            torn=scanner.torn is not None,
            generation=self._generation,
            from_cache=self._from_cache,
            error=self._error,
        )

    def _run(self) -> None:
        if cached := cache.load(self.path, self._cache_dir):
            self._scanner, self._identity = cached
            self._from_cache, self._kept_to = True, self._scanner.end
        while not self._stopped.is_set():
            self._wake.clear()
            ticket = self._asked
            try:
                self._look()
                self._keep(self._scanner.end // 4)
            except OSError as error:
                self._note(error=f"{str(self.path)!r} cannot be read: {error.strerror or error}")
            self._answer(ticket)
            if not self._follow:
                break
            self._wake.wait(self._poll_s)
        self._keep(0)

    def _look(self) -> None:
        """Read what the file holds beyond what is known."""
        with open(self.path, "rb", buffering=_BUFFER_BYTES) as file:
            if self._identity is not None and not self._identity.still_holds(file):
                self._begin_anew()
            stat, at_end = os.fstat(file.fileno()), False
            while not at_end and not self._stopped.is_set():
                at_end = self._scanner.advance(file, _SLICE_BYTES)
                self._bytes_total = max(os.fstat(file.fileno()).st_size, self._scanner.end)
                if not at_end:
                    self._note()
                    time.sleep(_BREATH_S)
            self._identity = Identity.of(file, self._scanner.end, stat)
        self._note(complete=at_end)

    def _keep(self, more_than: int) -> None:
        """Cache what was read, if that is worth it: more than so many bytes are new."""
        new = self._scanner.end - self._kept_to
        if self._identity is not None and new > more_than and new >= CACHED_FROM_BYTES:
            cache.save(self.path, self._cache_dir, self._scanner, self._identity)
            self._kept_to = self._scanner.end

    def _begin_anew(self) -> None:
        LOG.info("%s was replaced or edited and is read anew", self.path)
        with self._changed:
            self._scanner, self._identity = Scanner(), None
            self._generation, self._kept_to = self._generation + 1, 0
            self._complete, self._from_cache = False, False

    def _note(self, *, complete: bool = False, error: str | None = None) -> None:
        with self._changed:
            # A file that has grown is complete until more of it was found: the page need not show progress again.
            self._complete = complete or (self._complete and error is None)
            self._error = error
            self._changed.notify_all()

    def _answer(self, ticket: int) -> None:
        with self._changed:
            self._answered = ticket
            self._changed.notify_all()


def _require_readable(path: Path) -> None:
    if path.is_dir():
        raise ReportError(f"{str(path)!r} is a folder.\nhint: name a JSONL file in it")
    try:
        with open(path, "rb"):
            pass
    except FileNotFoundError as error:
        raise ReportError(f"there is no file {str(path)!r}.\nhint: check the path") from error
    except OSError as error:
        raise ReportError(f"{str(path)!r} cannot be read: {error.strerror}") from error
