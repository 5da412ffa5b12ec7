# SPDX-License-Identifier: Apache-2.0
"""A terminal for tests: a command on a real pseudo-terminal, or a stream that looks like one, and the screen that
either would leave.

Only what the live display uses is understood: moving the cursor, erasing lines, hiding the cursor, wrapping at the
edge. Anything else makes the test fail rather than be guessed at.
"""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 300
_TOKEN = re.compile(r"\x1b\[(?P<args>[?0-9;]*)(?P<command>[A-Za-z])|\x1b(?P<escape>[^\[])|(?P<plain>.)", re.DOTALL)


class Screen:
    """What is on a screen that is `columns` wide, with everything that has scrolled off above it."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._lines: list[list[str]] = [[]]
        self._row = self._column = 0
        self._pending = ""
        self.cursor_is_hidden = False
        self.styles: set[int] = set()
        """The codes of every style that was used."""

    @property
    def has_colours(self) -> bool:
        return any(30 <= code <= 49 or 90 <= code <= 107 for code in self.styles)

    @property
    def lines(self) -> list[str]:
        return ["".join(line).rstrip() for line in self._lines]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    def feed(self, text: str) -> None:
        """Take in what was written; an escape sequence that is cut in two waits for its end."""
        text = self._pending + text
        cut = text.rfind("\x1b")
        whole = cut < 0 or _TOKEN.match(text, cut) is not None
        text, self._pending = (text, "") if whole else (text[:cut], text[cut:])
        for token in _TOKEN.finditer(text):
            if token["plain"]:
                self._put(token["plain"])
            else:
                assert token["command"], f"an unknown escape sequence: {token[0]!r}"
                self._control(token["args"], token["command"])

    def _put(self, char: str) -> None:
        if char == "\n":
            self._down()
        elif char == "\r":
            self._column = 0
        elif char == "\b":
            self._column = max(self._column - 1, 0)
        else:
            assert char.isprintable(), f"an unknown control character: {char!r}"
            if self._column == self._columns:
                self._down()
                self._column = 0
            line = self._lines[self._row]
            line.extend(" " * (self._column + 1 - len(line)))
            line[self._column] = char
            self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append([])

    def _control(self, args: str, command: str) -> None:
        if args == "?25" and command in "hl":
            self.cursor_is_hidden = command == "l"
        elif command == "A":
            self._row -= int(args or 1)
            assert self._row >= 0, "the cursor left the screen"
        elif command == "K":
            line = self._lines[self._row]
            line[:] = [] if args == "2" else line[: self._column]
        elif command == "m":
            self.styles.update(int(code) for code in args.split(";") if code not in ("", "0"))
        else:
            raise AssertionError(f"an unknown control sequence: {args!r} {command!r}")


class ScreenStream(io.StringIO):
    """A stream of this process that is a terminal to whoever writes to it."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._screen.feed(text.replace("\n", "\r\n"))  # as the driver of a terminal does
        return len(text)


class OnTerminal:
    """A command that runs on a terminal."""

    def __init__(
        self, command: Sequence[str], *, columns: int, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**known, "TERM": "xterm-256color", **(environment or {})},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored by what runs in the background
        )
        os.close(theirs)
        self.screen = Screen(columns)
        self.frames: list[str] = []
        """The screen after every piece of output."""

    def read_until(self, condition: Callable[[Screen], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition(self.screen):
            assert time.monotonic() < deadline, f"waited in vain until {what}:\n{self.screen.text}"
            assert self._read(), f"ended before {what}:\n{self.screen.text}"

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        while self._read():
            pass
        return self.process.wait(timeout=PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _read(self) -> bool:
        """Take in the next piece of output; False at its end."""
        ready, _, _ = select.select([self._ours], [], [], PATIENCE_S)
        assert ready, f"nothing was written for {PATIENCE_S} s:\n{self.screen.text}"
        piece = b""
        with suppress(OSError):  # how Linux says that the other end is closed
            piece = os.read(self._ours, 1 << 16)
        while piece and piece[-1] & 0x80:  # the end of a character is still on its way
            try:
                piece.decode()
                break
            except UnicodeDecodeError:
                piece += os.read(self._ours, 1)
        self.screen.feed(piece.decode())
        self.frames.append(self.screen.text)
        return bool(piece)
