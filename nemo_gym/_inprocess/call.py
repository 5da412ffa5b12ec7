# SPDX-License-Identifier: Apache-2.0
"""Calls between servers that share a process and an event loop: straight into the target's ASGI app, no socket.

The caller gets an object that behaves as aiohttp's response does. Request and reply cross as JSON bytes, so that no
side can change the other's objects, and the target's whole middleware stack runs. `handed` is the short way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from http import HTTPStatus
from http.cookies import Morsel, SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from nemo_gym._transport.deadline import within
from nemo_gym._transport.errors import ServerResponseError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class _Hosted(NamedTuple):
    app: App
    loop: asyncio.AbstractEventLoop


_hosted: dict[tuple[str, int], _Hosted] = {}


def host_app(host: str, port: int, app: App) -> None:
    """Let calls from the running loop to `host:port` go straight into `app`."""
    _hosted[host, port] = _Hosted(app, asyncio.get_running_loop())


def unhost_app(host: str, port: int) -> None:
    """Forget the app of `host:port`."""
    _hosted.pop((host, port), None)


def hosted_app(host: str, port: int) -> App | None:
    """The app behind `host:port` if it lives on the running event loop."""
    entry = _hosted.get((host, port))
    return entry.app if entry and entry.loop is asyncio.get_running_loop() else None


def hosted_here(host: str, port: int) -> bool:
    """Whether the app behind `host:port` lives in this process, on whichever event loop."""
    return (host, port) in _hosted


class LocalContent:
    """The `content` of a local response: the part of aiohttp's StreamReader that callers use."""

    def __init__(self, body: bytes) -> None:
        self._rest = body

    async def read(self, n: int = -1) -> bytes:
        part, self._rest = (self._rest, b"") if n < 0 else (self._rest[:n], self._rest[n:])
        return part

    async def readline(self) -> bytes:
        line, newline, self._rest = self._rest.partition(b"\n")
        return line + newline

    async def iter_any(self) -> Any:
        if part := await self.read():
            yield part

    async def iter_chunked(self, n: int) -> Any:
        while part := await self.read(n):
            yield part

    def at_eof(self) -> bool:
        return not self._rest

    async def __aiter__(self) -> Any:
        while line := await self.readline():
            yield line


class LocalResponse:
    """Stands in for `aiohttp.ClientResponse` where no socket was involved."""

    def __init__(self, method: str, url: str, status: int, raw_headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.method, self.status, self._url, self._body = method, status, url, body
        self._raw_headers = raw_headers
        self.history: tuple[Any, ...] = ()
        self.closed = True
        # Made when asked for; `cached_property` takes a lock each time.
        self._content: LocalContent | None = None
        self._headers: CIMultiDictProxy[str] | None = None
        self._cookies: SimpleCookie | None = None

    @property
    def content(self) -> LocalContent:
        if self._content is None:
            self._content = LocalContent(self._bytes())
        return self._content

    @property
    def ok(self) -> bool:
        return self.status < 400

    @property
    def reason(self) -> str:
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return ""

    @property
    def url(self) -> URL:
        return URL(self._url)

    real_url = url

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        if self._headers is None:
            pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._head())
            self._headers = CIMultiDictProxy(CIMultiDict(pairs))
        return self._headers

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "application/octet-stream").partition(";")[0].strip()

    @property
    def cookies(self) -> SimpleCookie:
        if self._cookies is None:
            self._cookies = SimpleCookie()
            for key, value in self._head():
                if key == b"set-cookie":
                    add_cookie(self._cookies, value.decode("latin-1"))
        return self._cookies

    async def read(self) -> bytes:
        return self._bytes()

    async def text(self, encoding: str | None = None, errors: str = "strict") -> str:
        return self._bytes().decode(encoding or "utf-8", errors)

    async def json(self, **_: Any) -> Any:
        return orjson.loads(self._bytes())

    def raise_for_status(self) -> None:
        if not self.ok:
            raise ServerResponseError(self.method, self._url, self.status, self.reason, self._bytes())

    def release(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> "LocalResponse":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def _bytes(self) -> bytes:
        return self._body

    def _head(self) -> list[tuple[bytes, bytes]]:
        return self._raw_headers


def add_cookie(jar: SimpleCookie, header: str) -> None:
    """Put what a `Set-Cookie` header says into `jar`."""
    pair, _, attributes = header.partition(";")
    name, _, value = pair.strip().partition("=")
    # A morsel made this way skips checks that are for cookies one writes, not for cookies one reads.
    morsel: Morsel[str] = Morsel.__new__(Morsel)
    dict.update(morsel, _cookie_attributes(attributes))
    morsel.__setstate__({"key": name, "value": value.strip('"'), "coded_value": value})  # type: ignore[attr-defined]
    dict.__setitem__(jar, name, morsel)


@lru_cache(maxsize=256)
def _cookie_attributes(text: str) -> dict[str, Any]:
    """All attributes of a cookie; a server writes the same ones each time. Not to be changed."""
    morsel: Morsel[str] = Morsel()
    for attribute in text.split(";"):
        key, _, setting = attribute.strip().partition("=")
        if morsel.isReservedKey(key):
            morsel[key] = setting or True
    return dict(morsel)


async def call(
    app: App,
    method: str,
    url: str,
    path: str,
    *,
    server: tuple[str, int],
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    cookies: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    timeout_s: float,
) -> LocalResponse:
    """Send one request into `app` and wait for its whole reply."""
    scope = scope_of(method, path, server, raw_headers(body, headers, cookies, server), params)
    exchange = Exchange(body)
    await within(timeout_s, method, url, app(scope, exchange.receive, exchange.send))
    return exchange.response(method, url)


def scope_of(
    method: str,
    path: str,
    server: tuple[str, int],
    headers: list[tuple[bytes, bytes]],
    params: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The ASGI scope of a request."""
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path).encode() if not path.isascii() else path.encode(),
        "query_string": (urlencode(params, doseq=True) if params else query).encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": server,
        "state": {},
    }


def raw_headers(
    body: bytes, headers: Mapping[str, str] | None, cookies: Mapping[str, Any] | None, server: tuple[str, int]
) -> list[tuple[bytes, bytes]]:
    """The headers of a request, in the form that they have in a scope."""
    raw = [_host_header(server)]
    if body:
        raw.append((b"content-length", str(len(body)).encode()))
    for key, value in (headers or {}).items():
        raw.append((key.lower().encode("latin-1"), str(value).encode("latin-1")))
    if cookies:
        pairs = (f"{name}={getattr(value, 'value', value)}" for name, value in cookies.items())
        raw.append((b"cookie", "; ".join(pairs).encode("latin-1")))
    return raw


@lru_cache(maxsize=1024)
def _host_header(server: tuple[str, int]) -> tuple[bytes, bytes]:
    return b"host", f"{server[0]}:{server[1]}".encode()


class Exchange:
    """The two callables of one ASGI call."""

    __slots__ = ("_body", "_sent", "headers", "parts", "status")

    def __init__(self, body: bytes) -> None:
        self._body, self._sent = body, False
        self.status, self.headers = 500, list[tuple[bytes, bytes]]()
        self.parts = list[bytes]()

    async def receive(self) -> Message:
        if self._sent:
            # A local caller does not hang up half-way: it is cancelled together with the app.
            await asyncio.get_running_loop().create_future()
        self._sent = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.parts.append(message.get("body", b""))

    def response(self, method: str, url: str) -> LocalResponse:
        """What the app has sent."""
        parts = self.parts
        return LocalResponse(method, url, self.status, self.headers, parts[0] if len(parts) == 1 else b"".join(parts))
