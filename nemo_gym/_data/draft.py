# SPDX-License-Identifier: Apache-2.0
"""A file that is written now and takes its place later, when others are ready too, or not at all.

A process that is killed leaves its draft behind; whoever writes the next one for the same target removes it.
"""

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_BUFFER_BYTES = 1 << 20
_NEW_S = 60


class Draft:
    """A draft beside its target; leaving the block removes it unless it was published."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f"{_name_prefix(target)}{secrets.token_hex(4)}.tmp")

    def __enter__(self) -> "Draft":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(self.target)
        self._file = open(self.path, "xb", buffering=_BUFFER_BYTES)
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        finally:
            self.path.unlink(missing_ok=True)

    @contextmanager
    def rewrite(self) -> Iterator[BinaryIO]:
        """Open the draft, to be written from its beginning to its end."""
        yield self._file
        self._file.flush()

    def publish(self, *, sync: bool = False) -> None:
        """Take the place of the target; with `sync`, not before all of it is on the disk."""
        if sync:
            os.fsync(self._file.fileno())
        os.replace(self.path, self.target)


def _name_prefix(target: Path) -> str:
    return f".{target.name[:100]}."


def _remove_abandoned(target: Path) -> None:
    """Remove drafts of `target` that no process holds any more: a process that works on one has it locked."""
    pattern = re.compile(re.escape(_name_prefix(target)) + r"[0-9a-f]{8}\.tmp")
    for path in target.parent.iterdir():
        if pattern.fullmatch(path.name):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(file.fileno())
                # One that is empty and new may be about to be locked.
                if found.st_size or time.time() - found.st_mtime > _NEW_S:
                    path.unlink()
