# SPDX-License-Identifier: Apache-2.0
"""A call in the words of aiohttp (`json`, `headers`, `timeout`, …), made straight into an app of this process."""

from collections.abc import Coroutine
from typing import Any

import aiohttp

from nemo_gym._transport import http, local

TAKEN = frozenset({"json", "data", "headers", "cookies", "params", "timeout"})
"""The keyword arguments of aiohttp that such a call understands."""


def call_app(
    app: local.App, method: str, base_url: str, path: str, *, server: tuple[str, int], **kwargs: Any
) -> Coroutine[Any, Any, Any]:
    """What `app` answers, as an object that behaves as aiohttp's response does. To be awaited."""
    json, data, timeout = kwargs.pop("json", None), kwargs.pop("data", None), kwargs.pop("timeout", None)
    headers = dict(kwargs.pop("headers", None) or {})
    if json is not None:
        data = http.json_body(json)
        headers.setdefault("content-type", http.JSON_CONTENT_TYPE)
    total = timeout.total if isinstance(timeout, aiohttp.ClientTimeout) else timeout
    return local.call(
        app,
        method,
        f"{base_url}{path}",
        path,
        server=server,
        body=data.encode() if isinstance(data, str) else data or b"",
        headers=headers,
        timeout_s=float(total or http.SessionSettings.total_timeout_s),
        **kwargs,
    )
