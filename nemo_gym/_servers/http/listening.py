# SPDX-License-Identifier: Apache-2.0
"""uvicorn, set up for many short JSON calls, on sockets that are bound already.

Apart from `binding`, because uvicorn takes time to import and only who serves needs it. Its protocol gets bounds that
it lacks: on the size of a head (request line and headers) and on how long one may take to arrive. A client that
trickles one in holds a connection open, and one that never ends it fills the memory; the parser accepts both.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import httptools
import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from nemo_gym._servers.http.admission import AccessRules, Admission
from nemo_gym._servers.http.peer_user import refuse_other_user
from nemo_gym._servers.http.sockets import BACKLOG, prepare_to_listen

KEEP_ALIVE_S = 30
MAX_HEAD_BYTES = 64 * 2**10
MAX_HEADERS = 256
HEAD_TIMEOUT_S = 30.0
"""How long a connection may take to send the head of a request, from its first byte or from the start."""
STARTUP_FAILURE = 3  # uvicorn's exit code for it, whose home moves between its versions


def uvicorn_server(
    app: Any, host: str, port: int, access: AccessRules, *, quiet_signals: bool = False
) -> "AnnouncingServer":
    """Return a uvicorn server for `app`, tuned for many short JSON calls, which `access` lets in."""
    config = uvicorn.Config(
        Admission(app, host, access),
        host=host,
        port=port,
        loop="uvloop",
        http=choose_protocol(host, access),
        ws="none",
        lifespan="auto",
        access_log=False,
        log_level="warning",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
    if quiet_signals:
        return OwnedServer(config)
    return AnnouncingServer(config)


def choose_protocol(host: str, access: AccessRules) -> "type[BoundedHeadProtocol]":
    """Return the protocol for connections to a server that listens at `host`."""
    if access.asks_for_user(host):
        return OwnUserProtocol
    return BoundedHeadProtocol


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    # Calls that a stopping server cuts off are no errors: uvicorn would print a traceback for each of them.
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class AnnouncingServer(uvicorn.Server):
    """A server that listens once its app has started, and says so."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.on_ready: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        start_app = self.lifespan.startup

        async def start_app_then_listen() -> None:
            await start_app()
            for sock in sockets or ():
                prepare_to_listen(sock)

        self.lifespan.startup = start_app_then_listen
        try:
            await super().startup(sockets)
        except SystemExit:  # the app failed to start; others in this process are none of its business
            self.should_exit = True
        if self.started and self.on_ready is not None:
            self.on_ready()


def serve_in_thread(server: AnnouncingServer, sock: socket.socket, name: str) -> threading.Thread:
    """Serve in a daemon thread; return when the server listens, or could not start."""
    is_decided = threading.Event()

    def serve() -> None:
        try:
            server.run(sockets=[sock])
        finally:
            is_decided.set()

    server.on_ready = is_decided.set
    thread = threading.Thread(target=serve, name=name, daemon=True)
    thread.start()
    is_decided.wait()
    return thread


class OwnedServer(AnnouncingServer):
    """A server whose owner handles signals and waits for it to be ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.on_ready = self.ready.set

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


class BoundedHeadProtocol(HttpToolsProtocol):
    """Answers 431 to a head that is too large and 408 to one that does not come to its end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._n_heads = 0
        self._is_in_head = self._is_in_body = False
        # Since the head began, or since the last byte of a body. A part that holds the end of one counts as a whole.
        self._bytes_since = self._part_bytes = 0
        self._refusal: tuple[int, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        n_heads_before = self._n_heads
        self._part_bytes = len(data)
        self._bytes_since += self._part_bytes
        super().data_received(data)
        if self._is_in_body or self._is_in_head or self._n_heads == n_heads_before:
            self._check_unfinished()

    def _check_unfinished(self) -> None:
        if self.transport.is_closing():
            return
        if self._bytes_since > MAX_HEAD_BYTES:
            self._refuse(431, f"its request line and headers have more than {MAX_HEAD_BYTES} bytes.")
            self.send_400_response("")
        elif not self._is_in_body and self._head_timer is None:
            self._start_timer()

    # --- what the parser finds ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._bytes_since = self._part_bytes
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # those after a body have no reader
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        if len(self.headers) > MAX_HEADERS:
            self._refuse(431, f"it has more than {MAX_HEADERS} headers.")
            raise httptools.HttpParserError
        head_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._bytes_since > MAX_HEAD_BYTES and head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"its request line and headers have more than {MAX_HEAD_BYTES} bytes.")
            raise httptools.HttpParserError
        self._n_heads += 1
        self._is_in_head = False
        self._is_in_body = True
        self._bytes_since = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_since = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._bytes_since = 0
        super().on_message_complete()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._end_late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_timer()  # the request before this one is still being answered
        elif self._is_in_head:
            self._refuse(408, f"its headers did not come to their end within {HEAD_TIMEOUT_S:g} s.")
            self.send_400_response("")
        else:
            self.transport.close()

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _refuse(self, status: int, reason: str) -> None:
        self._refusal = status, reason

    def send_400_response(self, msg: str) -> None:
        if self._refusal is None:
            return super().send_400_response(msg)
        status, reason = self._refusal
        hint = "hint: send less in headers and cookies, and send it at once"
        body = orjson.dumps({"detail": f"the request was refused: {reason}\n{hint}"})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
        return None


class OwnUserProtocol(BoundedHeadProtocol):
    """Answers 403 to other users of this machine; the user is looked up once for each connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        refusal = refuse_other_user(transport.get_extra_info("socket"))
        if refusal is not None:
            self.app = refusal
