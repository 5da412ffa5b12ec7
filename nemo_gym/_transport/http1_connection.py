# SPDX-License-Identifier: Apache-2.0
"""One HTTP/1.1 connection of the small client: sends a request, and assembles its reply as it arrives.

A connection is closed whenever its state is uncertain: after a broken or cancelled call, when more than one reply
arrives, or when something arrives unasked.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import Any

import aiohttp
import httptools

from nemo_gym._transport.whole_response import RawHeaders

_MOST_HEAD_BYTES = 2**16
_MOST_FRAMING = 16
"""How many bytes may frame one byte of a body: one that arrives byte by byte has five."""


class TooLarge(Exception):
    """The reply has more bytes than allowed."""


class NotHttp(Exception):
    """What arrived is not a readable reply."""


class Connection(asyncio.Protocol):
    """One connection, and the reply that arrives over it: the parser calls the `on_…` methods."""

    __slots__ = (
        "_coding",
        "_content_length",
        "_framing_bytes",
        "_has_head",
        "_headers",
        "_is_chunked",
        "_is_complete",
        "_is_interim",
        "_limit_bytes",
        "_loop",
        "_parser",
        "_parts",
        "_size",
        "_status",
        "_transport",
        "_waiter",
        "idle_since",
        "is_open",
        "is_reusable",
        "on_lost",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: Any = None
        self._waiter: asyncio.Future[tuple[int, RawHeaders, bytes]] | None = None
        self.on_lost: Callable[[Connection], None] | None = None
        self.is_open = True
        self.is_reusable = False
        self.idle_since = 0.0

    def exchange(self, request: tuple[bytes, ...], limit_bytes: int) -> "Exchange":
        """Send a request; awaiting the result gives status, headers and body of the reply."""
        self._limit_bytes = limit_bytes
        self._size = 0
        self._framing_bytes = 0
        self._headers = list[tuple[bytes, bytes]]()
        self._parts = list[bytes]()
        self._has_head = self._is_complete = self._is_interim = self._is_chunked = self.is_reusable = False
        self._content_length: int | None = None
        self._coding = b""
        self._waiter = waiter = self._loop.create_future()
        for part in request:
            self._transport.write(part)
        return waiter

    def close(self) -> None:
        """Close it at once, whatever is in progress."""
        self.is_open = self.is_reusable = False
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()

    # --- transport events ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            return self.close()  # unasked: it would be taken for the next answer
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return self._fail(NotHttp("it changes to another protocol, which nobody has asked for"))
        except httptools.HttpParserError as error:
            if self._has_head and not self._is_complete:
                return self._fail(aiohttp.ClientPayloadError(str(error)))
            return self._fail(NotHttp(str(error)))
        if self._is_complete:
            self._finish()
        elif self._framing_bytes - self._size > _MOST_HEAD_BYTES + _MOST_FRAMING * self._size:
            self._fail(NotHttp("its headers do not come to an end"))
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = self.is_reusable = False
        if self.on_lost is not None:
            self.on_lost(self)
        if self._waiter is None or self._waiter.done():
            return
        is_until_the_end = self._has_head and self._content_length is None and not self._is_chunked
        if exc is None and is_until_the_end:
            self._finish()
        elif self._has_head:
            self._fail(aiohttp.ClientPayloadError(f"{self._size} bytes of the body came, and not its end"))
        else:
            self._fail(aiohttp.ServerDisconnectedError(str(exc) if exc else None))

    # --- parser events ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_complete:  # then its length is wrong, and its content may be too
            self._fail(NotHttp("more comes than one reply"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # nobody reads those after a body
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < 200:
            self._is_interim = True
            return
        self._has_head = True
        for name, value in self._headers:
            lowered = name.lower()
            if lowered == b"content-length":
                self._content_length = int(value)
                if self._content_length > self._limit_bytes:
                    self._fail(TooLarge())
            elif lowered == b"transfer-encoding":
                self._is_chunked = True
            elif lowered == b"content-encoding":
                self._coding = self._coding or value.strip().lower()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._size += len(body)
        if self._size > self._limit_bytes:
            self._fail(TooLarge())

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
            self._headers = []
            return
        self._is_complete = True
        # Not if part of the request is still to be sent: the next reply would answer that.
        self.is_reusable = (
            self.is_open and self._parser.should_keep_alive() and not self._transport.get_write_buffer_size()
        )

    def _finish(self) -> None:
        if self._waiter is None or self._waiter.done():
            return None
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if body and self._coding not in (b"", b"identity"):
            try:
                body = _decompress(self._coding, body, self._limit_bytes)
            except (TooLarge, NotHttp, aiohttp.ClientPayloadError) as error:
                return self._fail(error)
        waiter = self._waiter
        self._waiter = None
        self._parts = []  # an idle connection holds no reply
        waiter.set_result((self._status, self._headers, body))
        return None

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
            self.close()


Exchange = asyncio.Future[tuple[int, RawHeaders, bytes]]


def _decompress(coding: bytes, body: bytes, limit_bytes: int) -> bytes:
    """Return the decompressed body."""
    if coding not in (b"gzip", b"x-gzip", b"deflate"):
        raise NotHttp(f"its content encoding is {coding.decode('latin-1')!r}, which was not asked for")
    is_raw = coding == b"deflate" and body[0] & 0x0F != 8  # without the header that the standard requires
    parts = list[bytes]()
    size = 0
    try:
        while body:
            member = zlib.decompressobj(-zlib.MAX_WBITS if is_raw else zlib.MAX_WBITS | 32)
            parts.append(member.decompress(body, limit_bytes + 1 - size))
            size += len(parts[-1])
            if size > limit_bytes:
                raise TooLarge
            if not member.eof:
                raise aiohttp.ClientPayloadError("the compressed body is cut off")
            body = member.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise aiohttp.ClientPayloadError(f"the compressed body is broken ({error})") from error
    return b"".join(parts)
