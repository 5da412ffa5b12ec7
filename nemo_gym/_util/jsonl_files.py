# SPDX-License-Identifier: Apache-2.0
"""JSONL files: one object per line, read as a stream, with errors that name file and line.

A log that was cut off in the middle of its last line can be read too; writing logs is left to those who own them.
"""

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import orjson

from nemo_gym._util.atomic_files import atomic_writer
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
_MOST_QUOTED = 120


class JsonlError(GymError, ValueError):
    """A line of a JSONL file is not a JSON object."""


class Line(NamedTuple):
    """An object of a file, and where it stands."""

    number: int
    """Counts from 1."""
    offset: int
    """Where the line begins, in bytes."""
    size: int
    """Of the line with its end, in bytes."""
    row: dict[str, Any]


def loads_line(raw: bytes | str, path: str | os.PathLike[str], number: int) -> dict[str, Any]:
    """Return the object on one line of `path`; raise JsonlError, with file and line, if there is none."""
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise JsonlError(f"{path}:{number}: not valid JSON ({error}): {_quote(raw)}") from error
    if not isinstance(row, dict):
        raise JsonlError(f"{path}:{number}: a JSON object is expected, this is a {type(row).__name__}: {_quote(raw)}")
    return row


def parse_line(
    raw: bytes, path: str | os.PathLike[str], number: int, *, torn_tail_ok: bool = False
) -> dict[str, Any] | None:
    """Return the object on a line of `path`, None if the line is blank.

    `torn_tail_ok`: the file is a log that may have been cut off while its last line was written; such a line is None
    too, with a warning. A line that ends in a newline was written whole, so a bad one there is always an error.
    """
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError:
        row = None
    if type(row) is dict:
        return row
    if not raw.isspace():
        if not torn_tail_ok or raw.endswith(b"\n"):
            return loads_line(raw, path, number)  # raises what is wrong with it
        LOG.warning("%s:%d: the last line was cut off and is skipped", path, number)
    return None


def parse_lines(file: BinaryIO, path: str | os.PathLike[str], *, torn_tail_ok: bool = False) -> Iterator[Line]:
    """Yield the objects of a file that is open; see `parse_line`."""
    offset = 0
    for number, raw in enumerate(file, 1):
        row = parse_line(raw, path, number, torn_tail_ok=torn_tail_ok)
        size = len(raw)
        if row is not None:
            yield Line(number, offset, size, row)
        offset += size


def read_lines(path: str | os.PathLike[str], *, torn_tail_ok: bool = False) -> Iterator[Line]:
    """Yield the objects of `path` with their places; see `parse_line`."""
    with open(path, "rb") as file:
        yield from parse_lines(file, path, torn_tail_ok=torn_tail_ok)


def read_rows(path: str | os.PathLike[str], *, torn_tail_ok: bool = False) -> Iterator[dict[str, Any]]:
    """Like `read_lines`, without the places."""
    return (line.row for line in read_lines(path, torn_tail_ok=torn_tail_ok))


def dumps_line(row: Any) -> bytes:
    """Return one line, newline included. Numbers that JSON cannot hold (NaN, infinities) become null."""
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def write_rows(path: str | os.PathLike[str], rows: Iterable[Any]) -> int:
    """Write a whole file at once, complete or not at all; return the number of rows."""
    count = 0
    with atomic_writer(path) as file:
        for row in rows:
            file.write(dumps_line(row))
            count += 1
    return count


def _quote(raw: bytes | str) -> str:
    if isinstance(raw, bytes):
        raw = raw.decode("utf-8", errors="replace")
    text = raw.strip()
    if len(text) > _MOST_QUOTED:
        text = f"{text[:_MOST_QUOTED]}…"
    return repr(text)
