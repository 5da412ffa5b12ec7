# SPDX-License-Identifier: Apache-2.0
"""Server-sent events on the wire: how one event becomes bytes, and an incremental parser for the way back.

The dialects (what the events say) are in `sse_responses`, `sse_chat` and `sse_anthropic`. Reconnection (`retry:`, last
event id) is left out: a model's reply cannot be resumed.
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

CONTENT_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Event:
    """One received event: its name ("message" when the sender gave none) and its data."""

    name: str
    data: str

    def json(self) -> Any:
        return orjson.loads(self.data)


def frame(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """`data` as one event; JSON holds no raw line break, so one `data:` line is enough."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + orjson.dumps(data) + b"\n\n"


class EventParser:
    """Turns bytes, cut at any place, into events: `feed` gives those that a chunk completed."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # of the line that has not ended yet
        self._after_cr = False
        self._first_line = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        return [event for line in self._lines(chunk) if (event := self._line(line)) is not None]

    def _lines(self, chunk: bytes) -> list[bytes]:
        if not chunk:
            return []
        # A line ends with CR, LF or CRLF. A CR ends it at once; the LF that may follow in the next chunk is its half.
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        *lines, tail = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if lines:
            lines[0] = b"".join([*self._pieces, lines[0]])
            self._pieces = []
        self._pieces.append(tail)
        if lines and self._first_line:
            lines[0], self._first_line = lines[0].removeprefix(BYTE_ORDER_MARK), False
        return lines

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None

    def _dispatch(self) -> Event | None:
        event = Event(self._name or "message", "\n".join(self._data)) if self._data else None
        self._name, self._data = "", []
        return event


async def events(chunks: AsyncIterable[bytes]) -> AsyncIterator[Event]:
    """The events of a byte stream. An event without its closing blank line was cut off and is not one."""
    parser = EventParser()
    async for chunk in chunks:
        for event in parser.feed(chunk):
            yield event
