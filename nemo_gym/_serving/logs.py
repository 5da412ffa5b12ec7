# SPDX-License-Identifier: Apache-2.0
"""Line prefixes for the output of a server process, so that several can share one console."""

import sys
from typing import Any, TextIO


class PrefixedStream:
    """Wraps a text stream and puts `prefix` in front of every line."""

    def __init__(self, stream: TextIO, prefix: str) -> None:
        self._stream, self._prefix, self._at_line_start = stream, prefix, True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            self._stream.write(f"{self._prefix}{line}" if self._at_line_start else line)
            self._at_line_start = line.endswith("\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prefix_output(prefix: str) -> None:
    """Prefix everything this process prints from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, PrefixedStream):
            setattr(sys, name, PrefixedStream(stream, prefix))
