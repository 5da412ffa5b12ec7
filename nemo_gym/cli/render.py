# SPDX-License-Identifier: Apache-2.0
"""The only place that prints. Data goes to stdout, everything else to stderr."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

_COUNT_EVERY_S = 10.0
_counted_s: float | None = None
"""When `count` last printed something; None if it is not counting."""


def data(text: str) -> None:
    """Print the result of a command."""
    print(text, flush=True)


def json_data(value: Any) -> None:
    """Print the result of a command as JSON, on one line: scripts read the last one."""
    import orjson  # most commands print text, and help must be instant

    data(orjson.dumps(value, default=str).decode())


def note(text: str) -> None:
    """Print something that the user should know, besides the result."""
    print(text, file=sys.stderr, flush=True)


def count(text: str) -> None:
    """Print how long a wait has lasted: one line, rewritten, on a terminal; a line now and then elsewhere.

    Empty text ends the count.
    """
    global _counted_s
    now = time.monotonic()
    last_s = _counted_s
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        if text or last_s is not None:
            shown = text[: shutil.get_terminal_size().columns - 1]
            print(f"\r\x1b[2K{shown}\r", end="", file=sys.stderr, flush=True)
        _counted_s = now if text else None
    elif not text:
        _counted_s = None
    elif last_s is None or now - last_s >= _COUNT_EVERY_S:
        note(text)
        _counted_s = now


def error(text: str) -> None:
    """Print why a command failed."""
    note(f"\x1b[1;31mError:\x1b[0m {text}" if shows_colors(sys.stderr) else f"Error: {text}")


def shows_colors(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that shows colors."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Print rows, the first one as headings: fitted to a terminal, at natural width elsewhere."""
    if sys.stdout.isatty():
        _terminal_table(rows, title)
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rule = "  ".join("-" * width for width in widths)
    data("\n".join([*([title] if title else []), lines[0], rule, *lines[1:]]))


def _terminal_table(rows: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    headings, *body = rows
    drawn = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(headings):
        drawn.add_column(Text(heading), no_wrap=index == 0, overflow="fold")
    for row in body:
        drawn.add_row(*map(Text, row))
    Console(file=sys.stdout, highlight=False).print(drawn)
