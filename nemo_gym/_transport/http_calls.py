# SPDX-License-Identifier: Apache-2.0
"""Calls over HTTP: one pooled session, a small client for models, a deadline on every call, and bounded attempts.

A request that may already have run on the other side is repeated only if the caller or its method says that this is
safe. HTTP error statuses are answers, not failures: they are returned, never retried here.
"""

import asyncio
import logging
import random
import socket
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import aiohttp
import orjson
from aiohttp import hdrs
from pydantic import BaseModel
from yarl import URL

from nemo_gym._transport.call_errors import (
    REDIRECTS_IN_A_CIRCLE,
    ReplyTooLarge,
    ServerDeadlineExceeded,
    ServerUnreachable,
    Trouble,
    describe_redirect,
    describe_trouble,
)
from nemo_gym._transport.deadline import await_within
from nemo_gym._transport.http1 import Http1Client, Target, find_target
from nemo_gym._transport.retries import REPEATABLE_METHODS, RETRIES, RetryPolicy, RetryRule
from nemo_gym._transport.whole_response import WholeResponse
from nemo_gym._util.known_secrets import describe_error
from nemo_gym._wire.schema.wire_model import OpenModel

LOG = logging.getLogger(__name__)

_RNG = random.Random()
_REDIRECTS = frozenset({301, 302, 307, 308})
_MOST_REDIRECTS = 10
_CLIENT_ARGUMENTS = frozenset({"data", "headers", "params"})
_MODEL_LIMIT_SETTING = "max_model_reply_bytes"
JSON_CONTENT_TYPE = "application/json"
MAX_MODEL_REPLY_BYTES = 64 * 2**20
MAX_SERVER_REPLY_BYTES = 2**30


@dataclass(frozen=True)
class SessionSettings:
    """How the process-wide session is built; limits apply to this process."""

    connector_limit: int = 102_400
    connector_limit_per_host: int = 1024
    # Below the servers' own keep-alive of 30 s, so that the sending side closes first.
    keepalive_timeout_s: float = 15.0
    tcp_keepalive_idle_s: int = 60
    tcp_keepalive_interval_s: int = 10
    tcp_keepalive_probes: int = 3
    total_timeout_s: float = 3600.0
    # In a process busy with thousands of calls, each step of connecting may take seconds.
    connect_timeout_s: float = 60.0
    max_reply_bytes: int = MAX_SERVER_REPLY_BYTES


def build_session(settings: SessionSettings) -> aiohttp.ClientSession:
    """Return a session that sends only the cookies it is given and keeps idle connections alive."""
    connector = aiohttp.TCPConnector(
        limit=settings.connector_limit,
        limit_per_host=settings.connector_limit_per_host,
        keepalive_timeout=settings.keepalive_timeout_s,
        socket_factory=partial(_open_socket, settings),
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=settings.total_timeout_s, sock_connect=settings.connect_timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=type("Response", (BoundedResponse,), {"limit_bytes": settings.max_reply_bytes}),
    )


def build_model_client(settings: SessionSettings, max_reply_bytes: int) -> Http1Client:
    """Return a client for model calls, with the same limits."""
    return Http1Client(
        limit=settings.connector_limit,
        limit_per_host=settings.connector_limit_per_host,
        keepalive_s=settings.keepalive_timeout_s,
        connect_timeout_s=settings.connect_timeout_s,
        open_socket=partial(_open_socket, settings),
        max_reply_bytes=max_reply_bytes,
        limit_setting=_MODEL_LIMIT_SETTING,
    )


class BoundedResponse(aiohttp.ClientResponse):
    """A response whose body has at most `limit_bytes`: a larger one is abandoned while it arrives, and never held."""

    limit_bytes = MAX_SERVER_REPLY_BYTES
    setting = "max_server_reply_bytes"

    def bound_model_reply(self, limit_bytes: int) -> None:
        """Apply the limit for replies of a model's endpoint."""
        self.limit_bytes = limit_bytes
        self.setting = _MODEL_LIMIT_SETTING

    async def read(self) -> bytes:
        declared = self.content_length
        if self._body is None and (declared is None or hdrs.CONTENT_ENCODING in self.headers):
            self._body = await self._read_in_parts()
        elif self._body is None and declared is not None and declared > self.limit_bytes:
            raise self._give_up()
        return await super().read()

    async def _read_in_parts(self) -> bytes:
        parts = list[bytes]()
        size = 0
        try:
            async for part in self.content.iter_any():
                size += len(part)
                if size > self.limit_bytes:
                    raise self._give_up()
                parts.append(part)
        except BaseException:
            self.close()
            raise
        return b"".join(parts)

    def _give_up(self) -> ReplyTooLarge:
        self.close()
        return ReplyTooLarge(self.method, str(self.url), self.limit_bytes, self.setting)


def _open_socket(settings: SessionSettings, addr_info: Any) -> socket.socket:
    family, kind, proto, _, _ = addr_info
    sock = socket.socket(family=family, type=kind, proto=proto)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", settings.tcp_keepalive_idle_s),
        ("TCP_KEEPINTVL", settings.tcp_keepalive_interval_s),
        ("TCP_KEEPCNT", settings.tcp_keepalive_probes),
    ):
        if hasattr(socket, name):  # not every platform has all three
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock


def encode_json(value: Any) -> bytes:
    """Return `value` as JSON bytes; a pydantic model without its unset fields."""
    if type(value) is not dict and isinstance(value, BaseModel):
        return value.model_dump_json(exclude_unset=True).encode()
    return orjson.dumps(value, default=_dump_nested, option=orjson.OPT_NON_STR_KEYS)


def _dump_nested(value: Any) -> Any:
    if isinstance(value, BaseModel):
        # A reply is passed on whole: an agent may have built items of it that rely on their defaults.
        return value.model_dump(mode="json", exclude_unset=not isinstance(value, OpenModel))
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


Response = aiohttp.ClientResponse | WholeResponse


async def send(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    policy: RetryPolicy,
    idempotent: bool | None = None,
    bounded_s: float | None = None,
    same_origin: bool = False,
    client: Http1Client | None = None,
    **kwargs: Any,
) -> Response:
    """Send one request, and retry it where that is safe; the body is not read yet, unless `client` sent it.

    A caller who ends everything within `bounded_s` saves the session a timer, unless the session's would end earlier.
    With `same_origin`, a redirect elsewhere is an error, because it would take the key and the body along. `client` is
    for callers who only want the whole reply; what it cannot send goes through the session.
    """
    may_repeat = idempotent
    if idempotent is None:
        may_repeat = method.upper() in REPEATABLE_METHODS
    total_s = session.timeout.total
    target = _find_target(method, url, kwargs) if client is not None else None
    is_bounded = bounded_s is not None and total_s is not None and bounded_s <= total_s and "timeout" not in kwargs
    failure: aiohttp.ClientError
    attempt = 0
    while True:
        attempt += 1
        try:
            if client is not None and target is not None:
                call = client.call(method, url, target, kwargs.get("headers") or {}, kwargs.get("data") or b"")
                if total_s and not is_bounded:
                    call = await_within(total_s, method, url, call)
                reply = await call
                if reply.status not in _REDIRECTS:
                    return reply
            if is_bounded:
                kwargs["timeout"] = _drop_total(session.timeout)
            if same_origin:
                return await _request_same_origin(session, method, url, **kwargs)
            return await session.request(method, url, **kwargs)
        except aiohttp.ConnectionTimeoutError as error:
            failure = error
            bound = policy.unsent
        except TimeoutError as error:
            raise ServerDeadlineExceeded(method, str(url), _find_total_s(session, kwargs)) from error
        except aiohttp.ClientConnectorError as error:
            failure = error
            bound = policy.unsent
        except ServerUnreachable:
            raise
        except aiohttp.ClientConnectionError as error:
            failure = error
            bound = policy.repeatable if may_repeat else 1
        except (aiohttp.ClientResponseError, aiohttp.InvalidURL) as error:
            # Not because of its status, which is unchecked: the answer is not HTTP, or redirects endlessly.
            failure = error
            bound = 1
        trouble = describe_trouble(failure)
        if attempt >= bound:
            raise _build_unreachable(method, url, trouble, attempt) from failure
        pause_s = RetryRule(bound, policy.first_pause_s, policy.longest_pause_s).draw_pause_s(attempt, _RNG)
        cause = describe_error(failure) if LOG.isEnabledFor(logging.DEBUG) else ""
        LOG.debug("attempt %d of %s %s failed (%s); next in %.2f s", attempt, method, url, cause, pause_s)
        with RETRIES.count(trouble.kind):
            await asyncio.sleep(pause_s)


async def _request_same_origin(
    session: aiohttp.ClientSession, method: str, url: str, **kwargs: Any
) -> aiohttp.ClientResponse:
    """Send a request, and once more to where its answer redirects, as long as that is the same server."""
    target: URL | str = url
    for _ in range(_MOST_REDIRECTS):
        response = await session.request(method, target, allow_redirects=False, **kwargs)
        location = response.headers.get("Location") if response.status in _REDIRECTS else None
        if location is None:
            return response
        response.release()
        target = response.url.join(URL(location))
        if not target.absolute or target.origin() != response.url.origin():
            origin = f"{target.scheme}://{target.authority.rpartition('@')[2]}"
            raise _build_unreachable(method, url, describe_redirect(origin))
        kwargs.pop("params", None)  # the new URL contains them
    raise _build_unreachable(method, url, REDIRECTS_IN_A_CIRCLE)


def _find_target(method: str, url: str, kwargs: dict[str, Any]) -> Target | None:
    """Return where the small client sends a request; None if it cannot send it."""
    if kwargs.get("params") or not kwargs.keys() <= _CLIENT_ARGUMENTS or type(kwargs.get("data") or b"") is not bytes:
        return None
    return find_target(method, str(url), tuple(kwargs.get("headers") or ()))


def _build_unreachable(method: str, url: str, trouble: Trouble, attempts: int = 1) -> ServerUnreachable:
    return ServerUnreachable(method, str(url), trouble.text, attempts, trouble.kind, trouble.hint)


@lru_cache(maxsize=16)
def _drop_total(timeout: aiohttp.ClientTimeout) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None, connect=timeout.connect, sock_read=timeout.sock_read, sock_connect=timeout.sock_connect
    )


def _find_total_s(session: aiohttp.ClientSession, kwargs: dict[str, Any]) -> float:
    timeout = kwargs.get("timeout") or session.timeout
    total = timeout.total if isinstance(timeout, aiohttp.ClientTimeout) else timeout
    return float(total or 0.0)
