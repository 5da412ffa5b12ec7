# SPDX-License-Identifier: Apache-2.0
"""Folders of virtual environments on disk: complete or not, locked by whoever builds, linked where a user looks.

What goes into an environment and when it is built is decided in `venvs`.
"""

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from nemo_gym._util.atomic_files import write_atomically
from nemo_gym.errors import GymError

LOCK_POLL_S = 0.1

_COMPLETE = "complete.json"
_LOG = logging.getLogger(__name__)


def find_running_venv() -> Path:
    """Return the environment that this process runs in."""
    return Path(sys.prefix).resolve()


def python_in(venv: Path) -> Path:
    return venv / "bin" / "python"


def is_complete(venv: Path) -> bool:
    """Built to the end, and its base interpreter is still there."""
    return has_mark(venv) and python_in(venv).exists()


def has_mark(folder: Path) -> bool:
    """Tell whether `mark_complete` was the last act in `folder`."""
    return (folder / _COMPLETE).is_file()


def mark_complete(venv: Path, facts: dict[str, Any]) -> None:
    """Note that a build is done, as its last act."""
    write_atomically(venv / _COMPLETE, json.dumps({"schema": 1, **facts}, indent=2) + "\n")


def discard(venv: Path) -> None:
    """Remove an environment; its mark goes first, so that a removal cut short leaves nothing that looks complete."""
    (venv / _COMPLETE).unlink(missing_ok=True)
    if venv.exists():
        shutil.rmtree(venv)


def is_usable(place: Path) -> bool:
    """Tell whether `place` holds an environment to use as it is: somebody's own, or one of ours that is complete."""
    there = python_in(place).exists() and (place / "bin" / "activate").exists()
    return there and (not _is_link_of_ours(place) or is_complete(place))


def link(place: Path, venv: Path) -> None:
    """Let `place` lead to `venv`, unless something that is not ours is there or the folder cannot be written to."""
    if place.absolute().is_relative_to(find_running_venv()):
        return  # the files of an installed package are not ours to add to
    if (place.exists() and not _is_link_of_ours(place)) or leads_to(place, venv):
        return
    draft = place.with_name(f".venv.{secrets.token_hex(4)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        draft.symlink_to(venv, target_is_directory=True)
        draft.replace(place)
    except OSError as error:
        _LOG.debug("no link at %s: %s", place, error)
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def leads_to(place: Path, venv: Path) -> bool:
    """Tell whether `place` is a link to `venv`."""
    return place.is_symlink() and place.readlink() == venv


def _is_link_of_ours(place: Path) -> bool:
    """Ours lead to the running environment, or into a store, where environments lie beside their locks."""
    if leads_to(place, find_running_venv()):
        return True
    return place.is_symlink() and lock_of(place.parent / place.readlink()).exists()


def lock_of(venv: Path) -> Path:
    return venv.with_name(f"{venv.name}.lock")


@contextlib.asynccontextmanager
async def lock_venv(venv: Path, timeout_s: float, on_wait: Callable[[], None]) -> AsyncIterator[int]:
    """Hold the lock of `venv`, and give its descriptor.

    The lock ends with the last process that has the descriptor, so it cannot be left behind, and a child that
    inherits it keeps others away even when this process is killed.
    """
    path = lock_of(venv)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _try_lock(descriptor):
            on_wait()
            await _acquire(descriptor, path, timeout_s)
        yield descriptor
    finally:
        os.close(descriptor)


async def _acquire(descriptor: int, path: Path, timeout_s: float) -> None:
    # Polled, because a thread that blocks in flock cannot be cancelled.
    try:
        async with asyncio.timeout(timeout_s):
            while not _try_lock(descriptor):  # noqa: ASYNC110 - the other side is another process
                await asyncio.sleep(LOCK_POLL_S)
    except TimeoutError as error:
        raise GymError(
            f"another process has held {str(path)!r} for more than {timeout_s:g} s.\n"
            "hint: see who builds there (`fuser` names the process), or end it"
        ) from error


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
