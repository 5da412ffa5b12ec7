# SPDX-License-Identifier: Apache-2.0
"""Replicas of one server: where they are, and how calls find the one that holds their session.

Every reply of a replica sets a cookie that names it: its number, and which of its lives this is. A call that brings the
cookie back goes to that replica, a call without one to any. A replica that is started again has lost its sessions, so
it has a new name, and refuses calls that were meant for the old one: such a rollout has to be played again.

The workers of one machine find their sessions in another way, see `nemo_gym._servers.processes.affinity`. Theirs could
not serve here: it would send most calls over the network twice, and a hash of the session says nothing of a replica's
lives.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http.cookies import Morsel
from typing import Any

from aiohttp import ClientResponse
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym._servers.http.guard import json_reply
from nemo_gym._transport.call_errors import ServerUnreachable
from nemo_gym._transport.failures import HEADER, build_failure
from nemo_gym._transport.retries import REPEATABLE_METHODS
from nemo_gym.errors import SessionLost

REPLICA_ENV = "NEMO_GYM_REPLICA"
"""Tells a server process which replica it is, by the value of its cookie."""
WAIT_FOR_REPLICA_S = 180.0
"""How long a call without a session waits for a replica: Ray needs a quarter of a minute to notice that a node died."""
_ASK_AGAIN_S = 0.5
_AVOID_S = 5.0
# A connection that was made and broke may have reached its server.
_NOBODY_THERE = ("refused", "unreachable", "unknown host")

CallUrl = Callable[[str], Awaitable[ClientResponse]]
"""Sends the same request, once, to the base URL that is given."""


def name_replica_cookie(server: str) -> str:
    """Return the name of the cookie that says which replica of `server` holds a session."""
    return f"nemo_gym_replica___{server}"


def new_replica_id(number: int, life: str) -> str:
    """Return what the cookie of a replica says."""
    return f"{number}-{life}"


@dataclass(frozen=True)
class Replica:
    """One running replica."""

    id: str
    """The value of its cookie."""
    url: str


# --- in the replica ---------------------------------------------------------------------------------------------------


class ReplicaSessions:
    """Puts the replica's cookie on every reply, and refuses calls whose session another replica or life holds."""

    def __init__(self, app: ASGIApp, *, server: str, replica_id: str) -> None:
        self.app = app
        self._server = server
        self._id = replica_id
        self._cookie = name_replica_cookie(server)
        self._header = (b"set-cookie", f"{self._cookie}={replica_id}; path=/; httponly; samesite=lax".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        wanted = self._find_cookie(scope)
        if wanted is not None and wanted != self._id:
            lost = SessionLost(self._server, f"replica {wanted} held it, and this is replica {self._id}")
            reply = json_reply(503, str(lost))
            reply.headers[HEADER] = build_failure(lost, "session_lost", f"{self._server}{scope['path']}").encode()
            return await reply(scope, receive, send)

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), self._header]
            await send(message)

        return await self.app(scope, receive, send_with_cookie)

    def _find_cookie(self, scope: Scope) -> str | None:
        for name, value in scope["headers"]:
            if name == b"cookie" and (found := cookie_parser(value.decode("latin-1")).get(self._cookie)):
                return found
        return None


# --- in the caller ----------------------------------------------------------------------------------------------------


class AddressBook:
    """Where the replicas of every server of a run are, as the head server tells it."""

    def __init__(self, ask_head: Callable[[], Awaitable[Iterable[Mapping[str, Any]]]]) -> None:
        """`ask_head` returns the server instances that the head server lists."""
        self._ask_head = ask_head
        self._replicas: dict[str, list[Replica]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = -_ASK_AGAIN_S
        self._turns = itertools.count()
        self._avoided: dict[str, float] = {}

    def note_instances(self, instances: Iterable[Mapping[str, Any]]) -> None:
        """Take over where the replicas are."""
        self._replicas = {}
        for instance in instances:
            if instance.get("replica") and instance.get("url"):
                found = Replica(str(instance["replica"]), str(instance["url"]))
                self._replicas.setdefault(str(instance["process_name"]), []).append(found)

    def list_replicas(self, server: str) -> list[Replica]:
        """Return the replicas of `server` that are known to run."""
        return self._replicas.get(server, [])

    async def refresh(self) -> None:
        """Ask the head server; whoever asks meanwhile waits for the same answer."""
        task = self._asking
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = self._asking = asyncio.create_task(self._ask())
        await asyncio.shield(task)

    async def _ask(self) -> None:
        self.note_instances(await self._ask_head())
        self._asked_at = time.monotonic()

    async def call(
        self,
        server: str,
        method: str,
        cookies: Mapping[str, Any] | None,
        call_url: CallUrl,
        *,
        is_alive: Callable[[str], Awaitable[bool]],
        idempotent: bool | None = None,
        wait_s: float = WAIT_FOR_REPLICA_S,
    ) -> ClientResponse:
        """Send a call to the replica of `server` that holds its session, or to any if it has none.

        `is_alive` tells whether anybody answers at a base URL, for a call whose connection broke.
        """
        given = cookies.get(name_replica_cookie(server)) if cookies else None
        if given is not None:
            wanted = str(given.value) if isinstance(given, Morsel) else str(given)
            return await self._call_owner(server, wanted, call_url, is_alive)
        if idempotent is None:
            may_repeat = method.upper() in REPEATABLE_METHODS
        else:
            may_repeat = idempotent
        return await self._call_any(server, call_url, may_repeat, wait_s)

    async def _call_owner(
        self, server: str, wanted: str, call_url: CallUrl, is_alive: Callable[[str], Awaitable[bool]]
    ) -> ClientResponse:
        owner = self._find(server, wanted)
        if owner is None:
            await self.refresh()
            owner = self._find(server, wanted)
        if owner is None:
            running = ", ".join(replica.id for replica in self.list_replicas(server)) or "none"
            raise SessionLost(server, f"replica {wanted} held it and is gone (running: {running})")
        try:
            return await call_url(owner.url)
        except ServerUnreachable as error:
            if error.trouble not in _NOBODY_THERE and await is_alive(owner.url):
                raise  # a connection that broke; the session is still there
            self._avoid(owner)
            raise SessionLost(server, f"replica {wanted} held it and no longer answers ({error.cause})") from error

    async def _call_any(self, server: str, call_url: CallUrl, may_repeat: bool, wait_s: float) -> ClientResponse:
        ends_at = time.monotonic() + wait_s
        failure: ServerUnreachable | None = None
        attempts = 0
        while True:
            if usable := self._list_usable(server):
                replica = usable[next(self._turns) % len(usable)]
                attempts += 1
                try:
                    return await call_url(replica.url)
                except ServerUnreachable as error:
                    if error.trouble not in _NOBODY_THERE and not may_repeat:
                        raise
                    self._avoid(replica)
                    failure = error
            if time.monotonic() >= ends_at:
                raise self._build_error(server, wait_s, attempts, failure)
            # However many wait, the head server is asked now and then.
            if time.monotonic() - self._asked_at >= _ASK_AGAIN_S:
                await self.refresh()
            if not self._list_usable(server):
                await asyncio.sleep(_ASK_AGAIN_S)

    def _find(self, server: str, replica_id: str) -> Replica | None:
        return next((replica for replica in self.list_replicas(server) if replica.id == replica_id), None)

    def _list_usable(self, server: str) -> list[Replica]:
        """Return the replicas of `server`, but not those that did not answer just now."""
        now = time.monotonic()
        return [one for one in self.list_replicas(server) if self._avoided.get(one.id, now) <= now]

    def _avoid(self, replica: Replica) -> None:
        self._avoided[replica.id] = time.monotonic() + _AVOID_S

    def _build_error(
        self, server: str, wait_s: float, attempts: int, failure: ServerUnreachable | None
    ) -> ServerUnreachable:
        cause = f"no replica of server {server!r} answered within {wait_s:g} s"
        cause += f"; the last one: {failure.cause}" if failure else ", because none runs"
        method = failure.method if failure else "CALL"
        url = failure.url if failure else server
        hint = "`gym env status` shows the replicas, `ray status` the nodes that they can run on"
        return ServerUnreachable(method, url, cause, max(attempts, 1), "refused", hint)
