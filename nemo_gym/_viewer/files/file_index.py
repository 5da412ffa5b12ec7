# SPDX-License-Identifier: Apache-2.0
"""An open file: where its rows are and what their facts are, filled in by a thread that keeps reading.

The first rows are available at once, however large the file; rows that a run appends are picked up as they come. Only
the facts of rows are held in memory: a row itself is read from the file on demand.
"""

import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nemo_gym._viewer.files.columns import Columns, LineProblem, Scanner
from nemo_gym._viewer.files.read_cache import Identity, load_cache, save_cache
from nemo_gym._viewer.files.row_facts import Kind, parse_row
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
POLL_S = 1.0
# A smaller file is read so fast that a cache in the user's folder is not worth it.
CACHED_FROM_BYTES = 1 << 22
# Between two slices other threads get a turn: whoever serves the page must not wait for the reader.
_SLICE_BYTES = 1 << 18
_BREATH_S = 0.0002
_BUFFER_BYTES = 1 << 20


class ReportError(GymError, ValueError):
    """A file cannot be shown, or a report cannot be written."""


@dataclass(frozen=True)
class Progress:
    """How far a file has been read."""

    n_rows: int
    bytes_done: int
    bytes_total: int
    complete: bool
    """Whether everything that the file held when last checked has been read."""
    n_problems: int
    """Broken lines, and the torn last line."""
    torn: bool
    generation: int
    """Grows whenever the file was replaced or edited, and read again from the start."""
    from_cache: bool
    error: str | None
    """Why the file can no longer be read."""

    @property
    def share(self) -> float:
        if self.complete:
            return 1.0
        return min(self.bytes_done / self.bytes_total, 1.0) if self.bytes_total else 0.0

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever the rows change."""
        return self.generation, self.n_rows


def open_index(path: str | os.PathLike[str], *, user_cache_dir: Path | None = None, poll_s: float = POLL_S) -> "Index":
    """Start to read `path` in a thread, and return at once. Raise ReportError if it cannot be read.

    Large files are cached in `user_cache_dir` if their own folder is not writable. The file is checked every `poll_s`
    seconds.
    """
    path = Path(path)
    if path.is_dir():
        raise ReportError(f"{str(path)!r} is a folder.\nhint: name a JSONL file in it")
    try:
        with open(path, "rb"):
            pass
    except FileNotFoundError as error:
        raise ReportError(f"there is no file {str(path)!r}.\nhint: check the path") from error
    except OSError as error:
        raise ReportError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    return Index(path, user_cache_dir, poll_s)


class Index:
    """The rows of one file; a context manager that stops reading."""

    def __init__(self, path: Path, user_cache_dir: Path | None, poll_s: float) -> None:
        self.path = path
        self.name = path.name
        self._cache_dir = user_cache_dir
        self._poll_s = poll_s
        self._scanner = Scanner()
        self._identity: Identity | None = None
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._complete = False
        self._from_cache = False
        self._generation = 0
        self._n_asked = self._n_answered = 0
        self._cached_to = 0
        self._error: str | None = None
        self._bytes_total = path.stat().st_size
        self._thread = threading.Thread(target=self._run, name=f"index {path.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading; what was read stays."""
        self._stopped.set()
        self._wake.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def kind(self) -> Kind:
        return self._scanner.kind

    @property
    def columns(self) -> Columns:
        """The facts of the rows; get it once per operation, because a replaced file gets new ones."""
        return self._scanner.columns

    @property
    def n_rows(self) -> int:
        return self._scanner.columns.n_rows

    @property
    def problems(self) -> list[LineProblem]:
        return self._scanner.list_problems()

    @property
    def progress(self) -> Progress:
        with self._changed:
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

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the whole file is read, or cannot be read; return False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(self._has_ended, timeout_s)

    def wait_for_rows(self, n: int, timeout_s: float) -> bool:
        """Wait until `n` rows are read, or the whole file; return False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self.n_rows >= n or self._has_ended(), timeout_s)

    def refresh(self, timeout_s: float = 5.0) -> Progress:
        """Read what is new now instead of at the next poll, and return how far the file is read."""
        with self._changed:
            self._n_asked += 1
            ticket = self._n_asked
            self._wake.set()
            self._changed.wait_for(lambda: self._n_answered >= ticket or not self._thread.is_alive(), timeout_s)
        return self.progress

    def read_row(self, row: int) -> dict[str, Any]:
        """Read a row from the file."""
        columns = self.columns
        if not 0 <= row < columns.n_rows:
            raise ReportError(f"{str(self.path)!r} has no row {row}: there are {columns.n_rows} so far, counted from 0")
        try:
            with open(self.path, "rb", buffering=0) as file:
                return parse_row(os.pread(file.fileno(), columns.size[row], columns.offset[row]))
        except OSError as error:
            raise ReportError(f"{str(self.path)!r} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ReportError(
                f"row {row} of {str(self.path)!r} is not what it was: the file has changed.\n"
                f"hint: wait a moment; the file is read again when it is not merely appended to"
            ) from error

    def find_row(self, task: int) -> int | None:
        """Return the first row of a task; None if there is none yet."""
        columns = self.columns
        try:
            return columns.task.index(task, 0, columns.n_rows)
        except ValueError:
            return None

    def _has_ended(self) -> bool:
        return self._complete or self._error is not None or not self._thread.is_alive()

    def _run(self) -> None:
        if cached := load_cache(self.path, self._cache_dir):
            self._scanner, self._identity = cached
            self._from_cache = True
            self._cached_to = self._scanner.end
        while not self._stopped.is_set():
            self._wake.clear()
            ticket = self._n_asked
            try:
                self._read_on()
                self._save(self._scanner.end // 4)
            except OSError as error:
                self._note(error=f"{str(self.path)!r} cannot be read: {error.strerror or error}")
            with self._changed:
                self._n_answered = ticket
                self._changed.notify_all()
            self._wake.wait(self._poll_s)
        self._save(0)

    def _read_on(self) -> None:
        """Read the part of the file that is not known yet."""
        with open(self.path, "rb", buffering=_BUFFER_BYTES) as file:
            if self._identity is not None and not self._identity.still_matches(file):
                LOG.info("%s was replaced or edited, reading it again", self.path)
                with self._changed:
                    self._scanner = Scanner()
                    self._identity = None
                    self._generation = self._generation + 1
                    self._cached_to = 0
                    self._complete = False
                    self._from_cache = False
            stat = os.fstat(file.fileno())
            at_end = False
            while not at_end and not self._stopped.is_set():
                at_end = self._scanner.advance(file, _SLICE_BYTES)
                self._bytes_total = max(os.fstat(file.fileno()).st_size, self._scanner.end)
                if not at_end:
                    self._note()
                    time.sleep(_BREATH_S)
            self._identity = Identity.of(file, self._scanner.end, stat)
        self._note(complete=at_end)

    def _save(self, more_than: int) -> None:
        """Cache what was read, if more than this many bytes of it are new and the file is large enough."""
        new = self._scanner.end - self._cached_to
        if self._identity is not None and new > more_than and new >= CACHED_FROM_BYTES:
            save_cache(self.path, self._cache_dir, self._scanner, self._identity)
            self._cached_to = self._scanner.end

    def _note(self, *, complete: bool = False, error: str | None = None) -> None:
        with self._changed:
            # A grown file stays complete until more of it is found: the page need not show progress again.
            self._complete = complete or (self._complete and error is None)
            self._error = error
            self._changed.notify_all()
