# SPDX-License-Identifier: Apache-2.0
"""Event streams for tests: a real HTTP server that streams given frames, so that the official SDK clients can be the
judges, and a parser of whole streams.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web


@dataclass(frozen=True)
class Event:
    """One event: its name ("message" where the sender gave none) and its data."""

    name: str
    data: str

    def json(self) -> Any:
        return orjson.loads(self.data)


def parse_events(stream: bytes) -> list[Event]:
    """Parse `stream`, in which a blank line must end every event."""
    *blocks, rest = stream.decode().split("\n\n")
    assert not rest, "the last event is cut off"
    events = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        assert fields.keys() <= {"event", "data"}
        events.append(Event(fields.get("event", "message"), fields["data"]))
    return events


@asynccontextmanager
async def streaming(frames: Iterable[bytes]) -> AsyncIterator[str]:
    """The base URL of a server that answers every POST with `frames`."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for frame in frames:
            await response.write(frame)
        return response

    app = web.Application()
    app.router.add_post("/{path:.*}", reply)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
