# SPDX-License-Identifier: Apache-2.0
"""Session affinity among the workers of one server: a request is answered by the worker that holds its session.

A session belongs to the worker that its id hashes to, and a worker gives new sessions ids of its own. A request that
reaches another worker is carried to the owner over a unix socket, as ASGI messages rather than as HTTP: the owner's app
sees what it would have seen, the client gets what that app said, and nothing is parsed twice. What comes from a peer is
never carried on, so no request goes round in circles. Websockets are left out: the servers have none.

Replicas (`nemo_gym._servers.ray.replicas`) find their sessions in another way, because each has an address: there the
caller chooses, by a cookie that names the replica. Workers share one port, so that any client can use them, and the
system chooses who accepts a connection; only the server itself can put that right.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym._servers.http.guard import json_reply
from nemo_gym._servers.http.sockets import BACKLOG
from nemo_gym._servers.processes.channel import Inbox, PeerChannel

LOG = logging.getLogger(__name__)

ReadSession = Callable[[bytes], str | None]
"""The session id that the value of a header names, if it names one."""

_CARRIED = (
    "asgi",
    "http_version",
    "method",
    "scheme",
    "path",
    "raw_path",
    "query_string",
    "root_path",
    "headers",
    "client",
    "server",
)
_MAX_REMEMBERED = 65_536
_LONGEST_REMEMBERED = 1024
_MAX_IDLE = 256
_CONNECT_TIMEOUT_S = 30.0
_CONNECT_AGAIN_S = 0.01


@dataclass(frozen=True)
class Peers:
    """The workers of one server, seen from one of them."""

    index: int
    paths: tuple[str, ...]
    """The unix socket of each worker, this one's included."""

    def owner(self, session_id: str) -> int:
        """Return the worker that holds session `session_id`."""
        return int.from_bytes(sha256(session_id.encode()).digest()[:8]) % len(self.paths)

    def new_session_id(self) -> str:
        """Return a new id that belongs to this worker; takes as many tries as there are workers, on average."""
        while self.owner(session_id := str(uuid4())) != self.index:
            pass
        return session_id


class SessionAffinity:
    """Answers the requests of this worker's own sessions with `app`, and carries those of others to their owners.

    `listener` is this worker's own unix socket, already listening. `read` maps the headers that may name a session, the
    decisive one first, to how to read them. A request without a session is answered here.
    """

    def __init__(self, app: ASGIApp, peers: Peers, listener: socket.socket, read: Mapping[bytes, ReadSession]) -> None:
        self._app = app
        self._peers = peers
        self._listener = listener
        self._read = read
        self._known: dict[bytes, int] = {}
        self._forwarders = [_Forwarder(number, path) for number, path in enumerate(peers.paths)]
        self._state: Mapping[str, Any] = {}
        self._exchanges = set[asyncio.Task[None]]()
        self._channels = set[_FromPeer]()
        self._server: asyncio.Server | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            owner = self._find_owner(scope)
            if owner is not None and owner != self._peers.index:
                return await self._forwarders[owner].forward(scope, receive, send)
        elif scope["type"] == "lifespan":
            return await self._serve_peers(scope, receive, send)
        return await self._app(scope, receive, send)

    def _find_owner(self, scope: Scope) -> int | None:
        for wanted, read in self._read.items():
            for name, value in scope["headers"]:
                if name == wanted and (owner := self._read_owner(value, read)) is not None:
                    return owner
        return None

    def _read_owner(self, header: bytes, read: ReadSession) -> int | None:
        """Return the owner of the session that `header` names. A session sends the same one with every call."""
        owner = self._known.get(header)
        if owner is None and (session_id := read(header)) is not None:
            owner = self._peers.owner(session_id)
            if len(header) <= _LONGEST_REMEMBERED:
                if len(self._known) >= _MAX_REMEMBERED:
                    del self._known[next(iter(self._known))]
                self._known[header] = owner
        return owner

    async def _serve_peers(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take requests of peers between the startup and the shutdown of the app."""
        self._state = scope.get("state", {})

        async def receive_and_close() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._close()
            return message

        async def note_and_send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._server = await asyncio.get_running_loop().create_unix_server(
                    lambda: _FromPeer(self._channels, self._start_exchange), sock=self._listener, backlog=BACKLOG
                )
            await send(message)

        await self._app(scope, receive_and_close, note_and_send)

    def _start_exchange(self, scope: Scope, exchange: "_PeerExchange") -> None:
        scope["state"] = dict(self._state)
        task = asyncio.get_running_loop().create_task(exchange.run(self._app, scope))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._exchanges:
            task.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        for channel in (*self._channels, *(idle for forwarder in self._forwarders for idle in forwarder.idle)):
            channel.close()


class _Forwarder:
    """Carries requests to one peer. A connection serves one request at a time and is used again after it."""

    def __init__(self, number: int, path: str) -> None:
        self._number = number
        self._path = path
        self.idle = list[_ToPeer]()

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            channel = await self._open_channel()
        except OSError as error:
            text = f"worker {self._number}, which holds this session, cannot be reached: {error}"
            return await json_reply(503, text)(scope, receive, send)
        request = asyncio.create_task(channel.carry_request(scope, receive))
        try:
            answered = await self._carry_reply(channel, request, send)
        except BaseException:
            channel.close()
            raise
        finally:
            request.cancel()
        if not answered:
            text = f"worker {self._number}, which holds this session, ended without an answer"
            return await json_reply(502, text)(scope, receive, send)
        if channel.request_carried and not channel.closed and len(self.idle) < _MAX_IDLE:
            self.idle.append(channel)
        else:
            channel.close()
        return None

    async def _carry_reply(self, channel: "_ToPeer", request: "asyncio.Task[None]", send: Send) -> bool:
        """Send on what the owner answers; False if it ended before it said anything."""
        started = False
        while (message := await channel.inbox.get()) is not None:
            complete = _is_last(message)
            if complete:
                # Before the client has it all: from then on a wait for its requests ends with `http.disconnect`.
                request.cancel()
            await send(message)
            started = True
            if complete:
                return True
        if started:
            raise ConnectionError(f"worker {self._number} ended in the middle of a reply")
        return False

    async def _open_channel(self) -> "_ToPeer":
        while self.idle:
            if not (channel := self.idle.pop()).closed:
                return channel
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            while True:
                if (sock := _connect(self._path)) is not None:
                    return (await loop.create_unix_connection(_ToPeer, sock=sock))[1]
                await asyncio.sleep(_CONNECT_AGAIN_S)


def _connect(path: str) -> socket.socket | None:
    """Return a socket connected to `path`; None while the queue of connections there is full.

    Done by hand, because asyncio takes a full queue for a connection that is under way.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        if isinstance(error, BlockingIOError):
            return None
        raise
    return sock


class _ToPeer(PeerChannel):
    """The end of the worker that the client reached."""

    def __init__(self) -> None:
        super().__init__()
        self.request_carried = False

    async def carry_request(self, scope: Scope, receive: Receive) -> None:
        """Send on what the client says, up to its hanging up."""
        self.request_carried = False
        self.write(tuple([scope.get(key) for key in _CARRIED]))
        with contextlib.suppress(ConnectionError):  # whoever waits for the reply notices as well
            while True:
                message = await receive()
                await self.send(message)
                if message["type"] == "http.disconnect":
                    return
                if not message.get("more_body", False):
                    self.request_carried = True


class _FromPeer(PeerChannel):
    """The end of the owner: every scope begins an exchange."""

    def __init__(self, open_channels: "set[_FromPeer]", begin: Callable[[Scope, "_PeerExchange"], None]) -> None:
        super().__init__()
        self._open_channels = open_channels
        self._start_exchange = begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._open_channels.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._open_channels.discard(self)

    def deliver(self, message: Any) -> None:
        if type(message) is tuple:
            # The app may still be busy after its last reply on this channel: it keeps its own inbox.
            self.inbox = Inbox(self)
            scope = dict(zip(_CARRIED, message, strict=True), type="http")
            self._start_exchange(scope, _PeerExchange(self, self.inbox))
        else:
            super().deliver(message)


class _PeerExchange:
    """One carried request in its owner's app."""

    def __init__(self, channel: _FromPeer, inbox: Inbox) -> None:
        self._channel = channel
        self._inbox = inbox
        self._complete = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Do what an HTTP server does around an app: an app that fails or says too little breaks the connection."""
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            LOG.exception("%s %s failed", scope["method"], scope["path"])
        finally:
            if not self._complete:
                self._channel.close()

    async def _receive(self) -> Message:
        return await self._inbox.get() or {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._complete or self._channel.closed:
            return
        if "headers" in message:
            message = {**message, "headers": list(message["headers"])}
        self._complete = _is_last(message)
        if self._complete:
            self._inbox.discard()
        with contextlib.suppress(ConnectionError):
            await self._channel.send(message)


def _is_last(message: Message) -> bool:
    return message["type"] == "http.response.body" and not message.get("more_body", False)
