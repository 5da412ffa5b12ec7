# SPDX-License-Identifier: Apache-2.0
"""The live display of a run: a bar and a few fields at the bottom of a terminal, laid out for its width.

Whatever else is printed meanwhile, by us or by servers, appears above it in whole lines. This module loads rich, so it
is imported only when there is a terminal to draw on.
"""

import re
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from nemo_gym._results.run_summary import Standing

_GAP = 3
_WIDEST_BAR = 40
_NARROWEST_BAR = 8
_VARYING = re.compile(r"[0-9a-f]*\d[0-9a-f]*")


class Frame:
    """The progress of a run as rich draws it."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # The last column stays free: a terminal that wraps at its edge would count one line more than was drawn.
        width = max(options.max_width - 1, 1)
        standing = self._standing
        head = Text(standing.count, style="bold", end="")
        bar_width = min(_WIDEST_BAR, width - head.cell_len - _GAP - len(" 100%"))
        styled = {
            "green": standing.reward,
            "cyan": standing.tokens,
            "yellow": standing.retrying,
            "red": standing.failures,
        }
        fields = [*((text, "") for text in standing.pace), *((text, style) for style, text in styled.items() if text)]
        if standing.is_over or standing.total is None or bar_width < _NARROWEST_BAR:
            fields.insert(0, (standing.count, "bold"))
        else:
            total = max(standing.total, 1)
            yield ProgressBar(total=total, completed=standing.done, width=bar_width)
            yield Text(f" {standing.done / total:4.0%}", end=" " * _GAP)
            yield head
            yield Text("")
        # As many fields on a line as fit; rich folds one that is longer than a line.
        line = Text()
        for text, style in fields:
            if line.cell_len and line.cell_len + _GAP + len(text) > width:
                yield line
                line = Text()
            line.append(" " * _GAP if line.cell_len else "").append(text, style)
        yield line


class Display:
    """A terminal that can show a run. Text written to it meanwhile waits for the next refresh."""

    def __init__(self, stream: TextIO, every_s: float) -> None:
        self.every_s = every_s
        self._console = Console(file=stream, highlight=False)
        self._live: Live | None = None
        self._above: list[str] = []
        self._lock = threading.Lock()

    def begin(self, standing: Standing) -> None:
        self._live = Live(
            Frame(standing),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="visible",
        )
        self._live.start(refresh=True)

    def refresh(self, standing: Standing) -> None:
        if self._live is not None:
            self._print_above()
            self._live.update(Frame(standing), refresh=True)

    def end(self, standing: Standing) -> None:
        self.refresh(standing)
        self.release()

    def release(self) -> None:
        """Give the terminal back: the last frame stays, the cursor shows again."""
        live = self._live
        self._live = None
        if live is not None:
            live.stop()
            self._print_above()

    def take(self, text: str, stream: TextIO) -> None:
        """Write `text`: now, or above the display if there is one."""
        with self._lock:
            if self._live is not None:
                self._above.append(text)
                return
        stream.write(text)

    def _print_above(self) -> None:
        with self._lock:
            lines, cut, rest = "".join(self._above).rpartition("\n")
            self._above = [rest] if rest and self._live is not None else []
            if self._live is None:
                lines += cut + rest
        if lines:
            self._console.print(Text.from_ansi("\n".join(_merge_alike(lines.strip("\n").split("\n")))), soft_wrap=True)


def _merge_alike(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that differ only in numbers once, so that a hundred servers with the same problem stay readable."""
    counted = Counter[str]()
    firsts = dict[str, str]()
    for line in lines:
        gist = _VARYING.sub("#", line)
        counted[gist] += 1
        firsts.setdefault(gist, line)
    for gist, line in firsts.items():
        more = counted[gist] - 1
        yield f"{line} (and {more} more like it)" if more and line.strip() else line


class _DisplayStream:
    """Replaces a stream of the terminal: what is written to it goes through the display."""

    def __init__(self, stream: TextIO, display: Display) -> None:
        self._stream = stream
        self._display = display

    def write(self, text: str) -> int:
        self._display.take(text, self._stream)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def open_terminal(every_s: float) -> Iterator[Display]:
    """Open a display on the terminal behind stderr; meanwhile, both streams of this process go through it."""
    before = sys.stdout, sys.stderr
    display = Display(sys.stderr, every_s)
    through = tuple(_DisplayStream(stream, display) if stream.isatty() else stream for stream in before)
    sys.stdout, sys.stderr = through
    try:
        yield display
    finally:
        display.release()
        # If somebody replaced them meanwhile, the replacement stays.
        sys.stdout = before[0] if sys.stdout is through[0] else sys.stdout
        sys.stderr = before[1] if sys.stderr is through[1] else sys.stderr
