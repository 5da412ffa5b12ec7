# SPDX-License-Identifier: Apache-2.0
"""One run at a time for one rollouts file: two that write to it would play the same rollouts and mix their rows.

The lock dies with its process, so a run that was killed blocks nobody. A file system without locks gets a warning.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from nemo_gym._rollouts.paths import RunFileError, RunPaths, write_error

LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def run_lock(paths: RunPaths) -> Iterator[None]:
    """Hold the files of `paths` for this process; RunFileError if another run holds them."""
    fd = _locked(paths)
    try:
        yield
    finally:
        # Unlinked while it is still held: whoever opened it in the meantime notices and starts again.
        paths.lock.unlink(missing_ok=True)
        os.close(fd)


def _locked(paths: RunPaths) -> int:
    while True:
        try:
            paths.lock.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise write_error(paths.lock, error, "choose an output in a folder that you may write to") from error
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
        if _is_still(paths.lock, fd):
            # Who holds it is good to know; on a full disk there may be no room to say so.
            with contextlib.suppress(OSError):
                os.truncate(fd, 0)
                os.pwrite(fd, b"%d\n" % os.getpid(), 0)
            return fd
        os.close(fd)


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
