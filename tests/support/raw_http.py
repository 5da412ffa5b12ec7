# SPDX-License-Identifier: Apache-2.0
"""Requests byte by byte, as no client library would send them."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 300


@dataclass(frozen=True)
class RawReply:
    """What came back until the server closed the connection; status 0 if nothing did."""

    status: int
    headers: str
    body: bytes

    @property
    def detail(self) -> Any:
        return json.loads(self.body)["detail"]


async def send_raw(port: int, data: bytes) -> RawReply:
    """Send `data` to a port of this machine and return the reply."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            return read_reply(await reader.read())
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def read_reply(received: bytes) -> RawReply:
    head, _, body = received.partition(b"\r\n\r\n")
    line, _, headers = head.decode("latin-1").partition("\r\n")
    return RawReply(int(line.split()[1]) if line else 0, headers.lower(), body)


async def ask(port: int, method: str, path: str, body: bytes = b"", **headers: str | None) -> RawReply:
    """Send one request; `content_type="x"` is the header `content-type: x`, and `host=None` leaves out the host."""
    named = {"host": f"127.0.0.1:{port}", "connection": "close", **headers}
    if body:
        named["content_length"] = str(len(body))
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in named.items() if value is not None]
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""])
    return await send_raw(port, head.encode() + body)
