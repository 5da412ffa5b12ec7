# SPDX-License-Identifier: Apache-2.0
"""The folder of one rollout on our side. It is removed at the end, and by the next run if its owner was killed.

Its owner holds a lock on it, which ends with the process whatever ends that.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "nemo-gym-program-"
_LOCK = "lock"


@dataclass(frozen=True)
class RolloutFolder:
    """Where things of a rollout lie."""

    private: Path
    """What only we can reach: copies of the workspace, the socket of the gateway."""
    sandboxes: Path
    """Where its sandbox is made."""


@asynccontextmanager
async def make_rollout_folder() -> AsyncIterator[RolloutFolder]:
    """Make the folder of a rollout, for as long as the context lasts."""
    folder, lock = await asyncio.to_thread(_make_locked)
    try:
        yield RolloutFolder(folder / "private", folder / "sandboxes")
    finally:
        try:
            await asyncio.shield(asyncio.to_thread(_remove, folder))
        finally:
            os.close(lock)


def remove_left_folders() -> None:
    """Remove the folders of processes that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def _make_locked() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:  # else somebody cleaned up just before it was locked
            break
        os.close(lock)
    # The user of a sandbox must be able to pass through, but not to look around.
    folder.chmod(0o711)
    (folder / "sandboxes").mkdir(mode=0o711)
    (folder / "private").mkdir(mode=0o700)
    return folder, lock


def _remove(folder: Path) -> None:
    """Remove a folder in which a program may have locked us out of some."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for place, _, _ in os.walk(folder, onerror=lambda error: os.chmod(error.filename, 0o700)):
            os.chmod(place, 0o700)
        shutil.rmtree(folder, ignore_errors=True)
