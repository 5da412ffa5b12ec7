# SPDX-License-Identifier: Apache-2.0
"""Append-only JSONL files that several processes may write at once: one line at a time, under a lock, to the disk.

A line that a crash tore stays where it is; the next writer starts a fresh line and the reader counts it as lost.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson


@dataclass(frozen=True)
class Lines:
    """What a journal holds: the objects that could be read, and the numbers (from 1) of the lines that could not."""

    objects: list[dict[str, Any]]
    unreadable: list[int]


def append_object(path: Path, value: dict[str, Any]) -> None:
    """Add `value` as one line; what JSON does not know is written as text. Creates the file and its folder."""
    line = _dump_line(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open_locked(path) as fd:
        # The check for a torn tail and the write have to be one step.
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line
        _write_all(fd, line)
        os.fsync(fd)


def read_lines(path: Path) -> list[bytes]:
    """Read the lines that hold something, once nobody writes; a file that is not there has none."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return [line for line in file.read().split(b"\n") if line.strip()]
    except FileNotFoundError:
        return []


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the object on a line; ValueError if there is none."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        value = json.loads(line)  # half of a surrogate pair, which `_dump_line` may have written
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is expected, this is a {type(value).__name__}")
    return value


def read_objects(path: Path) -> Lines:
    """Read every line of `path`; a file that is not there is an empty journal."""
    objects: list[dict[str, Any]] = []
    unreadable: list[int] = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            objects.append(parse_object(line))
        except (ValueError, RecursionError):
            unreadable.append(number)
    return Lines(objects, unreadable)


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
    """Whether `fd` still is the file at `path`: whoever held the lock may have deleted it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _dump_line(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
    except TypeError:  # numbers beyond 64 bits, half of a surrogate pair, very deep nesting
        return json.dumps(value, default=str).encode() + b"\n"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
