# SPDX-License-Identifier: Apache-2.0
"""A call in the words of aiohttp (`json`, `headers`, `timeout`, …), made straight into an app of this process."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple

import aiohttp

from nemo_gym._inprocess import call as local
from nemo_gym._inprocess.objects import LocalCall
from nemo_gym._transport import http
from nemo_gym._transport.deadline import bounded, find_earliest_end, is_covered

TAKEN = frozenset({"json", "data", "headers", "cookies", "params", "timeout"})
"""The keyword arguments of aiohttp that such a call understands."""
_JSON_HEADERS = {"content-type": http.JSON_CONTENT_TYPE}
SECONDS_LEFT_HEADER = "x-nemo-gym-seconds-left"
"""Tells a server in another process when its caller gives up."""


def with_seconds_left(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return `headers` with the time that whoever waits for the running call will still wait, if that has an end."""
    end = find_earliest_end()
    if end is None:
        return headers
    return {**(headers or {}), SECONDS_LEFT_HEADER: f"{end - asyncio.get_running_loop().time():.3f}"}


class ServerAddress(NamedTuple):
    """Where a server is, and what calls to it carry: looked up once, as configs are slow to read."""

    server_type: str
    host: str
    port: int
    base_url: str
    is_observed: bool
    token: str | None


def call_app(
    app: local.App,
    method: str,
    base_url: str,
    path: str,
    *,
    server: tuple[str, int],
    json: Any = None,
    data: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    cookies: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    timeout: aiohttp.ClientTimeout | float | None = None,
) -> Coroutine[Any, Any, Any]:
    """What `app` answers, as an object that behaves as aiohttp's response does. To be awaited at once."""
    total = timeout.total if isinstance(timeout, aiohttp.ClientTimeout) else timeout
    timeout_s, url = float(total or http.SessionSettings.total_timeout_s), f"{base_url}{path}"
    if json is not None:
        headers = {"content-type": http.JSON_CONTENT_TYPE, **headers} if headers else _JSON_HEADERS
        direct = getattr(app, "direct", None)
        handler = direct(method, path) if direct is not None and not params else None
        if handler is not None:
            answer: Coroutine[Any, Any, Any] = handler.answer(
                LocalCall(method, url, path, server, json, headers, cookies)
            )
            return answer if is_covered(timeout_s) else bounded(timeout_s, method, url, answer)
        data = http.json_body(json)
    body = data.encode() if isinstance(data, str) else data or b""
    return local.call(
        app,
        method,
        url,
        path,
        server=server,
        body=body,
        headers=headers,
        cookies=cookies,
        params=params,
        timeout_s=timeout_s,
    )
