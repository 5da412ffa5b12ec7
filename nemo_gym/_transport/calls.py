# SPDX-License-Identifier: Apache-2.0
"""A call in the words of aiohttp (`json`, `headers`, `timeout`, …), made straight into an app of this process."""

from collections.abc import Coroutine
from typing import Any

import aiohttp

from nemo_gym._transport import http, local
from nemo_gym._transport.deadline import within
from nemo_gym._transport.handed import LocalCall

TAKEN = frozenset({"json", "data", "headers", "cookies", "params", "timeout"})
"""The keyword arguments of aiohttp that such a call understands."""


def call_app(
    app: local.App, method: str, base_url: str, path: str, *, server: tuple[str, int], **kwargs: Any
) -> Coroutine[Any, Any, Any]:
    """What `app` answers, as an object that behaves as aiohttp's response does. To be awaited."""
    json, data, timeout = kwargs.pop("json", None), kwargs.pop("data", None), kwargs.pop("timeout", None)
    headers, url = kwargs.pop("headers", None) or {}, f"{base_url}{path}"
    total = timeout.total if isinstance(timeout, aiohttp.ClientTimeout) else timeout
    timeout_s = float(total or http.SessionSettings.total_timeout_s)
    if json is not None:
        headers = {"content-type": http.JSON_CONTENT_TYPE, **headers}
        direct = getattr(app, "direct", None)
        handler = direct(method, path) if direct is not None and not kwargs.get("params") else None
        if handler is not None:
            given = LocalCall(method, url, path, server, json, headers, kwargs.get("cookies"))
            return within(timeout_s, method, url, handler.answer(given))
        data = http.json_body(json)
    body = data.encode() if isinstance(data, str) else data or b""
    return local.call(app, method, url, path, server=server, body=body, headers=headers, timeout_s=timeout_s, **kwargs)
