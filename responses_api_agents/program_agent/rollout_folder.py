# SPDX-License-Identifier: Apache-2.0
"""The folder of one rollout, outside its sandbox. It is removed at the end, or by the next run if its owner was killed.

The owner holds a lock on it, which is released however the process ends.
"""

import asyncio
import contextlib
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.sandbox.utils import remove_folder

PREFIX = "nemo-gym-program-"
_LOCK = "lock"


@dataclass(frozen=True)
class RolloutFolder:
    """The paths of a rollout's files."""

    private: Path
    """Files that only we can access: copies of the workspace, the gateway's socket."""
    sandboxes: Path
    """Where the sandbox is created."""


@asynccontextmanager
async def make_rollout_folder() -> AsyncIterator[RolloutFolder]:
    """Create the folder of a rollout; remove it when the context ends."""
    folder, lock = await asyncio.to_thread(_make_locked_folder)
    try:
        yield RolloutFolder(folder / "private", folder / "sandboxes")
    finally:
        try:
            with contextlib.suppress(OSError):  # the next run tries again
                await asyncio.shield(asyncio.to_thread(remove_folder, str(folder)))
        finally:
            os.close(lock)


def remove_stale_folders() -> None:
    """Remove the folders of processes that no longer exist."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(str(folder))
            finally:
                os.close(lock)


def _make_locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:  # else another process removed it just before it was locked
            break
        os.close(lock)
    # The sandbox's user may enter the folder, but not list it.
    folder.chmod(0o711)
    (folder / "sandboxes").mkdir(mode=0o711)
    (folder / "private").mkdir(mode=0o700)
    return folder, lock
