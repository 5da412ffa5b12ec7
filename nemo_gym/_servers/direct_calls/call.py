# SPDX-License-Identifier: Apache-2.0
"""A call with aiohttp's arguments (`json`, `headers`, `timeout`, …), made directly into an app of this process.

The caller gets an object that behaves like aiohttp's response. Where no handler can be called directly, request and
reply are passed as JSON bytes and the target's whole middleware stack runs.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp

from nemo_gym._servers.direct_calls.response import InProcessResponse
from nemo_gym._servers.direct_calls.running_apps import App, HostedApp, InProcessCall, Message
from nemo_gym._transport import http_calls as http
from nemo_gym._transport.callers import IN_PROCESS
from nemo_gym._transport.deadline import await_within

CALL_ARGUMENTS = frozenset({"json", "data", "headers", "cookies", "params", "timeout"})
"""The keyword arguments of aiohttp that such a call understands."""
_JSON_HEADERS = {"content-type": http.JSON_CONTENT_TYPE}


class ServerAddress(NamedTuple):
    """Where a server is, and what calls to it carry: looked up once, because configs are slow to read."""

    server_type: str
    host: str
    port: int
    base_url: str
    is_observed: bool
    token: str | None
    is_replicated: bool = False
    """Whether its replicas are elsewhere, and the head server knows where."""


def call_app(
    hosted: HostedApp,
    method: str,
    base_url: str,
    path: str,
    *,
    address: tuple[str, int],
    json: Any = None,
    data: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    cookies: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    timeout: aiohttp.ClientTimeout | float | None = None,
) -> Coroutine[Any, Any, InProcessResponse]:
    """Call the handler of `path` directly, else the whole app. The result must be awaited at once."""
    total = timeout.total if isinstance(timeout, aiohttp.ClientTimeout) else timeout
    timeout_s = float(total or http.SessionSettings.total_timeout_s)
    url = f"{base_url}{path}"
    if json is not None:
        headers = {**_JSON_HEADERS, **headers} if headers else _JSON_HEADERS
        call_handler = hosted.find_handler(method, path) if not params else None
        if call_handler is not None:
            return call_handler(
                InProcessCall(hosted.name, method, url, path, address, json, headers, cookies, timeout_s)
            )
        data = http.encode_json(json)
    body = data.encode() if isinstance(data, str) else data or b""
    given: dict[str, Any] = {"headers": headers, "cookies": cookies, "params": params}
    return call_asgi(hosted.app, method, url, path, address=address, body=body, timeout_s=timeout_s, **given)


async def call_asgi(
    app: App,
    method: str,
    url: str,
    path: str,
    *,
    address: tuple[str, int],
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    cookies: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    timeout_s: float,
) -> InProcessResponse:
    """Send one request into `app` and wait for its whole reply."""
    scope = build_scope(method, path, address, encode_headers(body, headers, cookies, address), params)
    exchange = AsgiExchange(body)
    await await_within(timeout_s, method, url, app(scope, exchange.receive, exchange.send))
    return exchange.build_response(method, url)


def build_scope(
    method: str,
    path: str,
    address: tuple[str, int],
    headers: list[tuple[bytes, bytes]],
    params: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
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
        "server": address,
        "state": {},
        IN_PROCESS: True,
    }


def encode_headers(
    body: bytes, headers: Mapping[str, str] | None, cookies: Mapping[str, Any] | None, address: tuple[str, int]
) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request as they appear in a scope."""
    raw = [_encode_host(address)]
    if body:
        raw.append((b"content-length", str(len(body)).encode()))
    for key, value in (headers or {}).items():
        raw.append((key.lower().encode("latin-1"), str(value).encode("latin-1")))
    if cookies:
        pairs = (f"{name}={getattr(value, 'value', value)}" for name, value in cookies.items())
        raw.append((b"cookie", "; ".join(pairs).encode("latin-1")))
    return raw


@lru_cache(maxsize=1024)
def _encode_host(address: tuple[str, int]) -> tuple[bytes, bytes]:
    return b"host", f"{address[0]}:{address[1]}".encode()


class AsgiExchange:
    """The two callables of one ASGI call."""

    __slots__ = ("_body", "_is_received", "headers", "parts", "status")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._is_received = False
        self.status = 500
        self.headers = list[tuple[bytes, bytes]]()
        self.parts = list[bytes]()

    async def receive(self) -> Message:
        if self._is_received:
            # A local caller does not hang up halfway: it is cancelled together with the app.
            await asyncio.get_running_loop().create_future()
        self._is_received = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.parts.append(message.get("body", b""))

    def build_response(self, method: str, url: str) -> InProcessResponse:
        """Return what the app sent."""
        body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        return InProcessResponse(method, url, self.status, self.headers, body)
