# SPDX-License-Identifier: Apache-2.0
"""Who printed a line: output of servers goes to a file per server, or to the console with the server's name in front.

Servers that share a process are told apart by the request they are working on; a server with a process of its own by
the pipe its lines come from.
"""

import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from nemo_gym._servers.direct_calls.running_apps import CURRENT_SERVER
from nemo_gym._util.known_secrets import KNOWN_SECRETS

SHOWN_LINES = 20


class ServerLogs:
    """Takes the lines of all servers of a run."""

    def __init__(self, folder: Path | None, console: TextIO) -> None:
        self._folder = folder
        self._console = console
        self._files: dict[str, TextIO] = {}
        self._last: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=SHOWN_LINES))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def line(self, name: str, text: str) -> None:
        """One line that the server `name` printed."""
        text = KNOWN_SECRETS.mask(text)
        self._last[name].append(text)
        if self._folder is None:
            with suppress(OSError):  # a terminal that was closed is no reason for servers to end
                self._console.write(f"({name}) {text}\n")
                self._console.flush()
            return
        if name not in self._files:
            self._files[name] = (self._folder / f"{name}.log").open("a", encoding="utf-8", buffering=1)
        self._files[name].write(f"{text}\n")

    def last_lines(self, name: str) -> tuple[str, ...]:
        """Return the last lines that the server `name` printed."""
        return tuple(self._last[name])

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


class _RoutedStream:
    """Stands in for stdout or stderr: lines printed for a server go to its log, everything else goes through."""

    def __init__(self, stream: TextIO, logs: ServerLogs, default: str | None = None) -> None:
        self._stream = stream
        self._logs = logs
        self._default = default
        self._partial: dict[str, str] = {}

    def write(self, text: str) -> int:
        name = CURRENT_SERVER.get() or self._default
        if name is None:
            return self._stream.write(text)
        *lines, rest = (self._partial.get(name, "") + text).split("\n")
        self._partial[name] = rest
        for line in lines:
            self._logs.line(name, line)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prefix_output(name: str) -> None:
    """Put `(name) ` in front of every line that this process, which runs one server only, prints from now on."""
    for stream in ("stdout", "stderr"):
        target = getattr(sys, stream)
        setattr(sys, stream, _RoutedStream(target, ServerLogs(None, target), name))


@contextmanager
def route_output(folder: Path | None) -> Iterator[ServerLogs]:
    """Route what servers in this process print while the context lasts."""
    stdout = sys.stdout
    stderr = sys.stderr
    logs = ServerLogs(folder, stderr)
    routed = _RoutedStream(stdout, logs), _RoutedStream(stderr, logs)
    sys.stdout, sys.stderr = routed
    try:
        yield logs
    finally:
        # Whoever has replaced them meanwhile keeps what he put there.
        if sys.stdout is routed[0]:
            sys.stdout = stdout
        if sys.stderr is routed[1]:
            sys.stderr = stderr
        logs.close()
