# SPDX-License-Identifier: Apache-2.0
"""Append-only JSONL files that several processes may write at once: one `write` per line, under a lock.

A line that a crash tore stays where it is; the next writer starts a fresh line and the reader counts it as lost.
"""

import fcntl
import os
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
    """Add `value` as one line; creates the file and its folder."""
    line = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        # Released by close(). The check for a torn tail and the write have to be one step.
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line
        _write_all(fd, line)
    finally:
        os.close(fd)


def read_objects(path: Path) -> Lines:
    """Read every line of `path`; a file that is not there is an empty journal."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Lines([], [])
    objects: list[dict[str, Any]] = []
    unreadable: list[int] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        value = _parsed(line)
        if isinstance(value, dict):
            objects.append(value)
        else:
            unreadable.append(number)
    return Lines(objects, unreadable)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
