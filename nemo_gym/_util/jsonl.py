# SPDX-License-Identifier: Apache-2.0
"""JSONL files: one object per line, read as a stream, with errors that name file and line.

A log that was cut off in the middle of its last line can be read too; writing logs is left to those who own them.
"""

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from nemo_gym._util.files import atomic_writer
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
_SHOWN = 120


class JsonlError(GymError, ValueError):
    """A line of a JSONL file is not a JSON object."""


class Line(NamedTuple):
    number: int
    """Counts from 1."""
    row: dict[str, Any]


def loads_line(raw: bytes | str, path: str | os.PathLike[str], number: int) -> dict[str, Any]:
    """The object on one line of `path`; JsonlError names file and line when there is none."""
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise JsonlError(f"{path}:{number}: not valid JSON ({error}): {_shown(raw)}") from error
    if not isinstance(row, dict):
        raise JsonlError(f"{path}:{number}: a JSON object is expected, this is a {type(row).__name__}: {_shown(raw)}")
    return row


def read_lines(path: str | os.PathLike[str], *, torn_tail_ok: bool = False) -> Iterator[Line]:
    """The numbered objects of `path`, blank lines left out.

    `torn_tail_ok`: the file is a log that may have been cut off while its last line was written; such a line is skipped
    with a warning. A line that ends in a newline was written whole, so a bad one there is always an error.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            try:
                row = loads_line(raw, path, number)
            except JsonlError:
                if torn_tail_ok and not raw.endswith(b"\n"):
                    LOG.warning("%s:%d: the last line was cut off and is skipped", path, number)
                    return
                raise
            yield Line(number, row)


def read_rows(path: str | os.PathLike[str], *, torn_tail_ok: bool = False) -> Iterator[dict[str, Any]]:
    """Like `read_lines`, without the numbers."""
    return (line.row for line in read_lines(path, torn_tail_ok=torn_tail_ok))


def dumps_line(row: Any) -> bytes:
    """One line, newline included. Numbers that JSON cannot hold (NaN, infinities) become null."""
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def write_rows(path: str | os.PathLike[str], rows: Iterable[Any]) -> int:
    """Write a whole file at once, complete or not at all; returns the number of rows."""
    count = 0
    with atomic_writer(path) as file:
        for row in rows:
            file.write(dumps_line(row))
            count += 1
    return count


def _shown(raw: bytes | str) -> str:
    text = raw.decode("utf-8", errors="replace") if isinstance(raw, bytes) else raw
    text = text.strip()
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
