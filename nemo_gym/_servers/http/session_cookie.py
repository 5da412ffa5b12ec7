# SPDX-License-Identifier: Apache-2.0
"""The session cookie, as pure ASGI: every request belongs to a session, and every reply carries its cookie.

The cookie's form is that of Starlette's SessionMiddleware (JSON, base64, timestamp signature), so that cookies made by
either are understood by the other. A cookie whose content did not change is sent back as it came, unsigned anew.
"""

import hmac
import json
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from uuid import uuid4

import itsdangerous
import orjson
from itsdangerous.encoding import base64_encode, int_to_bytes
from itsdangerous.signer import SigningAlgorithm
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym._servers.direct_calls.object_request import OPEN_SESSION
from nemo_gym._util.trim_buffer import trim_buffer

MAX_AGE_S = 14 * 24 * 60 * 60
_RENEW_AFTER_S = MAX_AGE_S // 2
_REMEMBERED_COOKIES = 8_192


class SessionCookie:
    """The form of a session cookie: the session as JSON, base64, signed together with the time of signing."""

    def __init__(self, name: str, secret: str) -> None:
        self.name = name
        self._signer = _Signer(secret)
        # A session sends the same cookie with every call, so what was signed or checked once is known. Forged cookies
        # are not kept: nobody else decides how much is held here.
        self._known: dict[str, tuple[bytes, float]] = {}

    def sign(self, session: bytes) -> str:
        """Return the cookie of a session that is given as JSON."""
        signed_at = self._signer.get_timestamp()
        cookie = self._signer.sign_at(b64encode(session), signed_at)
        self._remember(cookie, session, float(signed_at))
        return cookie

    def unsign(self, cookie: str) -> tuple[bytes, float]:
        """Return the session as JSON and when it was signed; empty, and time 0, if the cookie is not ours."""
        known = self._known.get(cookie)
        if known is not None:
            return known
        try:
            data, signed_at = self._signer.unsign(cookie, return_timestamp=True)
            session = orjson.dumps(json.loads(b64decode(data)))
        except (itsdangerous.BadData, ValueError):
            return b"", 0.0
        return self._remember(cookie, session, signed_at.timestamp())

    def find(self, header: bytes) -> str | None:
        """Return the cookie of this name in a `Cookie` header."""
        text = header.decode("latin-1")
        name, _, value = text.partition("=")
        if name == self.name and ";" not in value and '"' not in value:  # the only cookie, as servers send it
            return value.strip()
        return cookie_parser(text).get(self.name)

    def session(self, header: bytes) -> dict[str, Any]:
        """Return the session that a `Cookie` header holds, however old; empty if it holds none of ours."""
        cookie = self.find(header)
        held = self.unsign(cookie)[0] if cookie else b""
        return orjson.loads(held) if held else {}

    def _remember(self, cookie: str, session: bytes, signed_at: float) -> tuple[bytes, float]:
        if len(self._known) >= _REMEMBERED_COOKIES:
            del self._known[next(iter(self._known))]
        self._known[cookie] = kept = trim_buffer(session), signed_at
        return kept


def session_cookie(app: Any, name: str) -> SessionCookie:
    """Return the form of the cookies of `app`; a server with a session middleware of its own signs with their name."""
    return SessionCookie(name, getattr(app.state, "nemo_gym_session_secret", name))


class _Sha1Hmac(SigningAlgorithm):
    """The signature that itsdangerous makes by default, in one call."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        return hmac.digest(key, value, "sha1")


class _Signer(itsdangerous.TimestampSigner):
    """A signer with one secret, whose key is derived once."""

    def __init__(self, secret: str) -> None:
        super().__init__(secret, algorithm=_Sha1Hmac())
        self._key = super().derive_key()
        self._keyed = hmac.new(self._key, digestmod="sha1")

    def derive_key(self, secret_key: str | bytes | None = None) -> bytes:
        return self._key

    def sign_at(self, value: bytes, at: int) -> str:
        """Return what `sign` makes of `value` at a given time."""
        stamped = b"%b.%b" % (value, _encode_time(at))
        # To take in the key is most of the work, and a copy has done it already.
        signature = self._keyed.copy()
        signature.update(stamped)
        return (stamped + b"." + urlsafe_b64encode(signature.digest()).rstrip(b"=")).decode()


@lru_cache(maxsize=1)
def _encode_time(at: int) -> bytes:
    return base64_encode(int_to_bytes(at))


def new_session_id() -> str:
    """Return the id of a new session."""
    return str(uuid4())


class SessionCookieMiddleware:
    """Puts `scope["session"]` in place, with a session id under `id_key`; `new_id` makes the ids of new sessions."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        cookie_name: str,
        secret: str,
        id_key: str,
        new_id: Callable[[], str] = new_session_id,
    ) -> None:
        self.app = app
        self.cookie_name = cookie_name
        self._cookie = SessionCookie(cookie_name, secret)
        self._id_key = id_key
        self._new_id = new_id
        self._before = f"{cookie_name}="
        self._after = f"; path=/; Max-Age={MAX_AGE_S}; httponly; samesite=lax"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        session: OpenSession = scope.get(OPEN_SESSION) or self.open(self._find_cookie(scope))
        scope["session"] = session.data

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                session.data = scope["session"]
                header = (b"set-cookie", session.set_cookie().encode("latin-1"))
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        return await self.app(scope, receive, send_with_cookie)

    def open(self, cookie: str | None) -> "OpenSession":
        """Return the session that `cookie` stands for, or a new one."""
        return OpenSession(self, cookie)

    def load(self, session: "OpenSession") -> dict[str, Any]:
        """Return what the cookie of `session` holds, or what a new session begins with."""
        cookie = session.cookie
        held, signed_at = self._cookie.unsign(cookie) if cookie else (b"", 0.0)
        age_s = time.time() - signed_at
        data: dict[str, Any] = {}
        if held and age_s <= MAX_AGE_S:
            data = orjson.loads(held)
        if self._id_key not in data:
            data[self._id_key] = self._new_id()
        session.cookie = cookie if age_s < _RENEW_AFTER_S else None
        session.loaded = held
        return data

    def set_cookie(self, session: "OpenSession") -> str:
        """Return the `Set-Cookie` header of a session as it is now."""
        current = orjson.dumps(
            session.data, option=orjson.OPT_NON_STR_KEYS
        )  # decides about the cookie, so it comes first
        unchanged = session.cookie is not None and current == session.loaded
        return f"{self._before}{session.cookie if unchanged else self._cookie.sign(current)}{self._after}"

    def _find_cookie(self, scope: Scope) -> str | None:
        for name, value in scope["headers"]:
            if name == b"cookie":
                cookie = self._cookie.find(value)
                if cookie:
                    return cookie
        return None


class OpenSession:
    """A session while a request is at work in it. Its cookie is read when somebody looks into it, and not before."""

    __slots__ = ("_data", "cookie", "loaded", "owner")

    def __init__(
        self,
        middleware: SessionCookieMiddleware,
        cookie: str | None,
        data: dict[str, Any] | None = None,
        loaded: bytes = b"",
    ) -> None:
        """`cookie` may be sent back as long as `data` is what was `loaded` from it."""
        self.owner = middleware
        self.cookie = cookie
        self._data = data
        self.loaded = loaded

    @property
    def data(self) -> dict[str, Any]:
        """What the handler sees as `request.session`."""
        if self._data is None:
            self._data = self.owner.load(self)
        return self._data

    @data.setter
    def data(self, data: dict[str, Any]) -> None:
        self._data = data

    def set_cookie(self) -> str:
        """Return the `Set-Cookie` header for the reply."""
        return self.owner.set_cookie(self)

    def reopen(self) -> "OpenSession":
        """Open it for the next request, with what a cookie would carry and nothing else."""
        data = orjson.loads(orjson.dumps(self.data, option=orjson.OPT_NON_STR_KEYS))
        return OpenSession(self.owner, self.cookie, data, self.loaded)
