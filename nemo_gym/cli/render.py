# SPDX-License-Identifier: Apache-2.0
"""The only place that prints. Data goes to stdout, everything else to stderr."""

import sys
from collections.abc import Sequence
from typing import Any

import orjson


def data(text: str) -> None:
    """Text that is the result of a command."""
    print(text, flush=True)


def json_data(value: Any) -> None:
    """A value that is the result of a command, as JSON."""
    data(orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode())


def note(text: str) -> None:
    """Something the user should know, beside the result."""
    print(text, file=sys.stderr, flush=True)


def error(text: str) -> None:
    """Why a command failed."""
    note(f"Error: {text}")


def status_line(text: str, *, live: bool, last: bool = False) -> None:
    """How something is doing: on a terminal in place of the line before, else as a line of its own."""
    if not live:
        note(text)
        return
    print(f"\r\x1b[2K{text}", end="\n" if last else "", file=sys.stderr, flush=True)


def table(rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Rows of a result, the first one as headings."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rule = "  ".join("-" * width for width in widths)
    data("\n".join([*([title] if title else []), lines[0], rule, *lines[1:]]))
