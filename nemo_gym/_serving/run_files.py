# SPDX-License-Identifier: Apache-2.0
"""Files of a run that only its user may read, gone when the run is."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = re.compile(r"run-(?P<machine>.+)-(?P<pid>\d+)-\d+\.yaml")


@contextmanager
def private_file(folder: Path, text: str) -> Iterator[Path]:
    """A file with `text` while the context lasts. What a killed process left behind is removed on the way."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_left_behind(folder)
    path = folder / f"run-{_machine()}-{os.getpid()}-{int.from_bytes(os.urandom(4))}.yaml"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _remove_left_behind(folder: Path) -> None:
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        # Several machines may share a home folder, and each knows its own processes only.
        if match and match["machine"] == _machine() and not _is_alive(int(match["pid"])):
            with suppress(OSError):
                path.unlink()


def _machine() -> str:
    return os.uname().nodename


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
