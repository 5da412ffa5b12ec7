# SPDX-License-Identifier: Apache-2.0
"""The session cookie, as pure ASGI: every request belongs to a session, and every reply carries its cookie.

The cookie's form is that of Starlette's SessionMiddleware (JSON, base64, timestamp signature), so that cookies made by
either are understood by the other. A cookie whose content did not change is sent back as it came, unsigned anew.
"""

import json
import time
from base64 import b64decode, b64encode
from functools import lru_cache
from typing import Any
from uuid import uuid4

import itsdangerous
import orjson
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_AGE_S = 14 * 24 * 60 * 60
_RENEW_AFTER_S = MAX_AGE_S // 2
_REMEMBERED_COOKIES = 65_536


class SessionCookieMiddleware:
    """Puts `scope["session"]` in place, with a session id under `id_key`."""

    def __init__(self, app: ASGIApp, *, cookie_name: str, secret: str, id_key: str) -> None:
        self._app = app
        self._name = cookie_name
        self._id_key = id_key
        self._signer = itsdangerous.TimestampSigner(secret)
        # A session sends the same cookie with every call: check its signature once.
        self._unsign = lru_cache(_REMEMBERED_COOKIES)(self._unsign_uncached)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        cookie, loaded = self._load(scope)
        session: dict[str, Any] = orjson.loads(loaded) if loaded else {}
        if self._id_key not in session:
            session[self._id_key] = str(uuid4())
        scope["session"] = session

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                current = orjson.dumps(scope["session"], option=orjson.OPT_NON_STR_KEYS)
                value = cookie if cookie and current == loaded else self._sign(current)
                header = f"{self._name}={value}; path=/; Max-Age={MAX_AGE_S}; httponly; samesite=lax"
                message["headers"] = [*message.get("headers", ()), (b"set-cookie", header.encode("latin-1"))]
            await send(message)

        return await self._app(scope, receive, send_with_cookie)

    def _load(self, scope: Scope) -> tuple[str | None, bytes]:
        """The cookie that may be sent back unchanged (if any), and the JSON of the session it holds."""
        for name, value in scope["headers"]:
            if name == b"cookie":
                cookie = cookie_parser(value.decode("latin-1")).get(self._name)
                if cookie:
                    session, signed_at = self._unsign(cookie)
                    age_s = time.time() - signed_at
                    if age_s > MAX_AGE_S:
                        return None, b""
                    return (cookie if age_s < _RENEW_AFTER_S else None), session
        return None, b""

    def _unsign_uncached(self, cookie: str) -> tuple[bytes, float]:
        """The session as JSON and when it was signed; nothing, signed at the dawn of time, if it is not ours."""
        try:
            data, signed_at = self._signer.unsign(cookie, return_timestamp=True)
            session = json.loads(b64decode(data))
        except (itsdangerous.BadData, ValueError):
            return b"", 0.0
        return orjson.dumps(session), signed_at.timestamp()

    def _sign(self, session: bytes) -> str:
        return self._signer.sign(b64encode(session)).decode()
