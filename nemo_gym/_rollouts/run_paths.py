# SPDX-License-Identifier: Apache-2.0
"""The files of a run: their paths beside the rollouts file, the lock on them, and the error when writing fails.

Only one run at a time writes to a rollouts file: two would run the same rollouts and mix their rows. The lock ends with
its process, so a killed run blocks nobody. A file system without locks gets a warning.
"""

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)


class RunFileError(GymError, OSError):
    """A file of a run cannot be read or written."""


@dataclass(frozen=True)
class RunPaths:
    """Everything that one run writes, named after its rollouts file."""

    output: Path
    """Scored rollouts, in the order they ended."""

    @classmethod
    def of(cls, output: str | Path) -> "RunPaths":
        path = Path(output)
        if not path.name or path.is_dir():
            raise RunFileError(
                f"the output {str(output)!r} is a folder, but rollouts go into a file.\n"
                f"hint: name one in it, such as {str(path / 'rollouts.jsonl')!r}"
            )
        return cls(path)

    @property
    def materialized(self) -> Path:
        """The planned rollouts: every row, expanded and repeated."""
        return self._beside("materialized_inputs.jsonl")

    @property
    def materialized_draft(self) -> Path:
        """The plan of a run that has not begun."""
        return self._beside("materialized_inputs.jsonl.partial")

    @property
    def failures(self) -> Path:
        """Rollouts that ended without a reward."""
        return self._beside("failures.jsonl")

    @property
    def aggregate_metrics(self) -> Path:
        return self._beside("aggregate_metrics.json")

    @property
    def manifest(self) -> Path:
        return self._beside("run.json")

    @property
    def scores(self) -> Path:
        """The scored rollouts without their bulk, while a run lasts."""
        return self._beside("scores.jsonl.partial")

    @property
    def lock(self) -> Path:
        return self._beside("run.lock")

    def _beside(self, what: str) -> Path:
        return self.output.with_name(f"{self.output.stem}_{what}")


def torn_path(log: Path) -> Path:
    """Return where the ends torn off `log` by crashes are kept."""
    return log.with_name(f"{log.name}.torn")


def write_error(path: Path, error: OSError, hint: str) -> RunFileError:
    """Turn `error`, raised while writing `path`, into an error the user can act on."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunFileError(f"the disk is full: {path} could not be written ({error.strerror}).\nhint: {hint}")
    return RunFileError(f"{path} could not be written: {error.strerror or error}.\nhint: {hint}")


@contextlib.contextmanager
def lock_run(paths: RunPaths) -> Iterator[None]:
    """Hold the files of `paths` for this process; raise RunFileError if another run holds them.

    On exit, remove the draft of a plan whose run did not begin.
    """
    fd = _acquire_lock(paths)
    try:
        yield
    finally:
        paths.materialized_draft.unlink(missing_ok=True)
        # Unlink while still holding it: whoever opened it in the meantime notices and starts again.
        paths.lock.unlink(missing_ok=True)
        os.close(fd)


def _acquire_lock(paths: RunPaths) -> int:
    while True:
        try:
            paths.lock.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            folder = paths.output.parent
            hint = "choose an output in a folder that you can write to"
            if isinstance(error, FileExistsError | NotADirectoryError):
                hint = f"{str(folder)!r} is not a folder; choose an output in one that you can write to"
            raise write_error(paths.output, error, hint) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise RunFileError(
                f"another run (process {holder}) is writing to {paths.output}.\n"
                f"hint: wait for it to end, or choose another output"
            ) from None
        except OSError as error:
            LOG.warning("%s cannot be locked (%s); make sure that no other run writes there", paths.output, error)
            return fd
        if _is_same_file(paths.lock, fd):
            # Record the holder for the message above; on a full disk there may be no room to do so.
            with contextlib.suppress(OSError):
                os.truncate(fd, 0)
                os.pwrite(fd, b"%d\n" % os.getpid(), 0)
            return fd
        os.close(fd)


def _is_same_file(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
