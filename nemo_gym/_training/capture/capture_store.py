# SPDX-License-Identifier: Apache-2.0
"""Where captures are stored: `<root>/<rollout id>.capture.jsonl`, plus `.capture.incomplete` once a call was lost.

Both are journals: append-only JSONL files that several processes may write at once, one line at a time, under a lock,
synced to disk. A line torn by a crash stays; the next writer starts a fresh line and the reader counts it as lost.
Calls block; from an event loop, use a thread.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._util.rollout_paths import check_rollout_id


@dataclass(frozen=True)
class JournalLines:
    """The content of a journal: the readable objects, and the numbers (from 1) of the unreadable lines."""

    objects: list[dict[str, Any]]
    unreadable: list[int]


def append_object(path: Path, value: dict[str, Any]) -> None:
    """Append `value` as one line, with what JSON cannot represent as text. Create the file and its folder if needed."""
    line = _dump_line(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open_locked(path) as fd:
        # Checking for a torn tail and writing must be one step.
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line
        left = memoryview(line)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)


def read_lines(path: Path) -> list[bytes]:
    """Read the non-empty lines once nobody is writing; a missing file has none."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return [line for line in file.read().split(b"\n") if line.strip()]
    except FileNotFoundError:
        return []


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the object on a line; raise ValueError if the line holds anything else."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            value = json.loads(line)  # half a surrogate pair, which `_dump_line` may have written
        except ValueError:
            raise error from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found a {type(value).__name__}")
    return value


def read_objects(path: Path) -> JournalLines:
    """Read every line of `path`; a missing file is an empty journal."""
    objects: list[dict[str, Any]] = []
    unreadable: list[int] = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            objects.append(parse_object(line))
        except (ValueError, RecursionError):
            unreadable.append(number)
    return JournalLines(objects, unreadable)


@contextmanager
def _open_locked(path: Path) -> Iterator[int]:
    """Open `path` for appending and hold its lock, which `close` releases."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(path, fd):
                yield fd
                return
        finally:
            os.close(fd)


def _is_at(path: Path, fd: int) -> bool:
    """Return whether `fd` still is the file at `path`: whoever held the lock may have deleted it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _dump_line(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
    except TypeError:  # numbers beyond 64 bits, half a surrogate pair, very deep nesting
        return json.dumps(value, default=str).encode() + b"\n"


CAPTURE_SUFFIX = ".capture.jsonl"
INCOMPLETE_SUFFIX = ".capture.incomplete"


def require_absolute(setting: str, folder: Path) -> None:
    """Raise ValueError unless `folder`, the value of `setting`, is an absolute path."""
    if not folder.is_absolute():
        raise ValueError(
            f"{setting} must be an absolute path, got {str(folder)!r}.\n"
            "hint: servers run in different folders, so a relative path would mean a different one to each"
        )


class CaptureStore:
    """The captured model exchanges, by rollout."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)

    def path_for(self, rollout_id: str) -> Path:
        return self.root / f"{check_rollout_id(rollout_id)}{CAPTURE_SUFFIX}"

    def incomplete_path_for(self, rollout_id: str) -> Path:
        return self.root / f"{check_rollout_id(rollout_id)}{INCOMPLETE_SUFFIX}"

    def record(self, rollout_id: str, exchange: dict[str, Any]) -> None:
        """Add one exchange to the capture of `rollout_id`; it is on disk when this returns."""
        append_object(self.path_for(rollout_id), exchange)

    def mark_incomplete(self, rollout_id: str, reason: str | None = None) -> None:
        """Note that the capture of `rollout_id` lacks something."""
        if reason is None:
            self.incomplete_path_for(rollout_id).touch()
        else:
            append_object(self.incomplete_path_for(rollout_id), {"reason": reason})

    def is_incomplete(self, rollout_id: str) -> bool:
        return self.incomplete_path_for(rollout_id).exists()

    def incomplete_reasons(self, rollout_id: str) -> list[str]:
        """Return the reasons why the capture of `rollout_id` was marked incomplete, without duplicates."""
        noted = read_objects(self.incomplete_path_for(rollout_id)).objects
        return list(dict.fromkeys(value["reason"] for value in noted if isinstance(value.get("reason"), str)))

    def read(self, rollout_id: str) -> list[dict[str, Any]]:
        """Return the exchanges of one rollout in the order they ended; raise ValueError for an unreadable line."""
        return [parse_object(line) for line in read_lines(self.path_for(rollout_id))]

    def read_available(self, rollout_id: str) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """Return the readable exchanges, each with the position of its line from 0, and how many are unreadable."""
        lines = read_objects(self.path_for(rollout_id))
        places = (place for place in count() if place + 1 not in lines.unreadable)
        return list(zip(places, lines.objects, strict=False)), len(lines.unreadable)

    def drop(self, rollout_id: str) -> None:
        """Delete the capture of `rollout_id`."""
        self.path_for(rollout_id).unlink(missing_ok=True)
        self.incomplete_path_for(rollout_id).unlink(missing_ok=True)
