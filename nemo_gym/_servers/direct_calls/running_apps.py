# SPDX-License-Identifier: Apache-2.0
"""Which servers run in this process, and what an app must offer for its handlers to be called directly."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, runtime_checkable

from nemo_gym._servers.direct_calls.response import InProcessResponse

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CURRENT_SERVER: ContextVar[str | None] = ContextVar("nemo_gym_current_server", default=None)
"""The server that the running code works for: what it prints is that server's output."""


class InProcessCall(NamedTuple):
    """One call to a handler, with the values its caller gave."""

    server_name: str | None
    method: str
    url: str
    path: str
    address: tuple[str, int]
    json: Any
    headers: Mapping[str, str] | None
    cookies: Mapping[str, Any] | None
    timeout_s: float


CallHandler = Callable[[InProcessCall], Coroutine[Any, Any, InProcessResponse]]
"""Calls one handler directly: `JsonHandler.answer` of one app."""


@runtime_checkable
class DirectlyCallable(Protocol):
    """An app that knows which of its handlers can be called directly."""

    def find_handler(self, method: str, path: str) -> CallHandler | None:
        """Return what calls the handler of `path`; None if a request must pass through the whole app."""


@contextmanager
def work_for(name: str) -> Iterator[None]:
    """Attribute what is printed inside to the server `name`."""
    token = CURRENT_SERVER.set(name)
    try:
        yield
    finally:
        CURRENT_SERVER.reset(token)


class ServerCall:
    """While it is entered, the running task works for the server `name`; without a name, for whom it worked before.

    Not a generator: every call between servers enters one.
    """

    __slots__ = ("_before", "_name", "_task", "_token")

    def __init__(self, name: str | None) -> None:
        self._name = name or CURRENT_SERVER.get()
        self._task = asyncio.current_task()

    def __enter__(self) -> None:
        self._before = _servers_at_work.get(self._task)
        _servers_at_work[self._task] = self._name
        self._token = CURRENT_SERVER.set(self._name)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            _servers_at_work.pop(self._task, None)  # nothing is left if nobody around it has a name either
        else:
            _servers_at_work[self._task] = self._before
        CURRENT_SERVER.reset(self._token)


_servers_at_work: dict[asyncio.Task[Any] | None, str | None] = {}
"""The server that each task is in a call to: unlike `CURRENT_SERVER`, other threads can read it."""


def find_server_at_work(loop: asyncio.AbstractEventLoop) -> str | None:
    """Return the server that the running task of `loop` is in a call to; None if it is in none. Any thread may ask."""
    return _servers_at_work.get(asyncio.current_task(loop))


class NamedApp:
    """Runs an app as the server `name`: what it prints meanwhile is that server's output."""

    def __init__(self, app: App, name: str) -> None:
        self.app = app
        self.name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ServerCall(self.name):
            await self.app(scope, receive, send)


class HostedApp(NamedTuple):
    """An app of this process, and the loop it runs on."""

    app: App
    loop: asyncio.AbstractEventLoop
    name: str | None
    find_handler: Callable[[str, str], CallHandler | None]


_hosted: dict[tuple[str, int], HostedApp] = {}


def host_app(host: str, port: int, app: App) -> None:
    """Let calls from the running loop to `host:port` go directly into `app`."""
    inner = app
    name = None
    if isinstance(app, NamedApp):
        inner = app.app
        name = app.name
    find_handler = inner.find_handler if isinstance(inner, DirectlyCallable) else _find_no_handler
    _hosted[host, port] = HostedApp(app, asyncio.get_running_loop(), name, find_handler)


def _find_no_handler(method: str, path: str) -> None:
    return None


def unhost_app(host: str, port: int) -> None:
    """Forget the app of `host:port`."""
    _hosted.pop((host, port), None)


def find_app(host: str, port: int) -> HostedApp | None:
    """Return the app behind `host:port` if it runs on the current event loop."""
    hosted = _hosted.get((host, port))
    if hosted and hosted.loop is asyncio.get_running_loop():
        return hosted
    return None


def is_in_this_process(host: str, port: int) -> bool:
    """Return whether the app behind `host:port` runs in this process, on any event loop."""
    return (host, port) in _hosted
