# SPDX-License-Identifier: Apache-2.0
"""A call from a server in the same process, straight to a plain JSON handler.

It is the short way past the middleware, and only open where all of that is ours: then what the middleware would do is
known and done here. A handler that raises is answered by the whole stack, as every other request is.
"""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message

from nemo_gym._inprocess import call as local
from nemo_gym._inprocess.objects import (
    HANDED,
    HandedResponse,
    LocalCall,
    UnmadeCookies,
    as_set,
    handed_fields,
    own,
    parts_of,
    read_fields,
)
from nemo_gym._inprocess.route import RAISED, GymRoute, Plan, parsed, serialised, validated
from nemo_gym._serving.guard import BodyTooLarge, JsonOf
from nemo_gym._serving.session import OPEN_SESSION, OpenSession, SessionCookieMiddleware
from nemo_gym._transport import http
from nemo_gym._transport.failures import error_of_exit
from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._wire.response import NeMoGymResponse

_ANY_SCOPE = {"type": "http"}


class _Body:
    """The body of a handed request, which becomes bytes for whoever reads bytes."""

    __slots__ = ("_bytes", "_handed", "_is_received")

    def __init__(self, handed: Any) -> None:
        self._handed, self._is_received = handed, False
        self._bytes: bytes | None = None

    def as_bytes(self) -> bytes:
        if self._bytes is None:
            self._bytes = http.json_body(self._handed)
        return self._bytes

    async def receive(self) -> Message:
        if self._is_received:
            # A local caller does not hang up half-way: it is cancelled together with the handler.
            await asyncio.get_running_loop().create_future()
        self._is_received = True
        return {"type": "http.request", "body": self.as_bytes(), "more_body": False}


class HandedRequest(Request):
    """A request whose body is a value until somebody reads it, and whose scope is made when somebody looks at it."""

    def __init__(self, make_scope: Callable[[], dict[str, Any]], handed: Any) -> None:
        self._make_scope, self._scope = make_scope, dict[str, Any]()
        # Not a method of its own: a request that refers to itself is only freed when cycles are looked for.
        self._handed_body = _Body(handed)
        super().__init__(_ANY_SCOPE, self._handed_body.receive)
        self.handed = handed

    @property
    def scope(self) -> MutableMapping[str, Any]:
        if not self._scope:
            self._scope = self._make_scope()
        return self._scope

    @scope.setter
    def scope(self, scope: MutableMapping[str, Any]) -> None:
        if scope is not _ANY_SCOPE:
            self._scope = dict(scope)

    def session_now(self, before: dict[str, Any]) -> Any:
        """The session as the handler has left it, who was given `before`."""
        return self._scope["session"] if self._scope else before

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = self._handed_body.as_bytes()
        return self._body


def handed_params(request: Request) -> NeMoGymResponseCreateParamsNonStreaming | None:
    """The create params that a caller in this process has sent; None if they have to be read from the body."""
    handed = request.handed if isinstance(request, HandedRequest) else None
    if type(handed) is not NeMoGymResponseCreateParamsNonStreaming:
        return None
    try:
        # Only what is no object of its class yet is looked at, and lists are new ones.
        return NeMoGymResponseCreateParamsNonStreaming.model_validate(as_set(handed))
    except ValidationError:
        return None


class DirectHandler:
    """Calls the handler of one route."""

    def __init__(
        self, app: ASGIApp, route: GymRoute, plan: Plan, sessions: SessionCookieMiddleware, limit_bytes: int
    ) -> None:
        self._app, self._route, self._plan, self._sessions = app, route, plan, sessions
        self._limit_bytes = limit_bytes
        self._handed_names, self._read_names = handed_fields(plan.body_type), read_fields(plan.body_type)

    async def answer(self, call: LocalCall) -> local.LocalResponse:
        """What the handler answers, or the app if the handler raises."""
        plan = self._plan
        session = self._session(call.cookies)
        request: HandedRequest | None = None
        arguments: dict[str, Any] = {}
        try:
            if plan.request_name:
                request = arguments[plan.request_name] = HandedRequest(partial(self._scope, call, session), call.json)
            if plan.body_name:
                arguments[plan.body_name] = self._body(call.json)
            result = await plan.endpoint(**arguments)
            if request is not None:
                session.data = request.session_now(session.data)
            if isinstance(result, Response) and not isinstance(result, JsonOf):
                return await self._sent(call, session, request, result)
            return HandedResponse(call.method, call.url, self._content(result), session)
        except BaseException as raised:
            return await self._raised(call, session, error_of_exit(raised))

    def _session(self, cookies: Mapping[str, Any] | None) -> OpenSession:
        if isinstance(cookies, UnmadeCookies):
            before = cookies.session
            if isinstance(before, OpenSession) and before.belongs_to(self._sessions):
                return before.again()
        held = cookies.get(self._sessions.cookie_name) if cookies else None
        return self._sessions.open(getattr(held, "value", held))

    def _body(self, json: Any) -> Any:
        adapter = self._plan.body
        assert adapter is not None
        if self._read_names is not None and type(json) is dict:
            json = {name: part for name, part in json.items() if name in self._read_names}
        if self._handed_names and type(json) is dict:
            handed = {name: own(json[name]) for name in self._handed_names if type(json.get(name)) in HANDED}
            if handed:
                rest = {name: part for name, part in json.items() if name not in handed}
                try:
                    return adapter.validate_python({**parsed(self._bytes(rest)), **handed})
                except ValidationError:
                    pass  # as bytes, it may fit after all; if not, the reasons are those that everyone gets
        return validated(adapter, parsed(self._bytes(json)))

    def _bytes(self, json: Any) -> bytes:
        body = http.json_body(json)
        if len(body) > self._limit_bytes:
            raise BodyTooLarge(len(body))
        return body

    def _content(self, result: Any) -> Any:
        if isinstance(result, JsonOf):
            value: Any = result.value
            return value if type(value) is NeMoGymResponse else value.model_dump_json().encode()
        if type(result) is self._plan.reply_type:
            parts = parts_of(result)
            if parts is not None:
                return parts
        return serialised(self._plan, result)

    async def _sent(
        self, call: LocalCall, session: OpenSession, request: HandedRequest | None, reply: Response
    ) -> local.LocalResponse:
        exchange = local.Exchange(b"")
        scope = request.scope if request is not None else self._scope(call, session)
        await reply(scope, exchange.receive, exchange.send)
        exchange.headers.append((b"set-cookie", session.set_cookie().encode("latin-1")))
        return exchange.response(call.method, call.url)

    async def _raised(self, call: LocalCall, session: OpenSession, error: BaseException) -> local.LocalResponse:
        scope = {**self._scope(call, session), RAISED: error, OPEN_SESSION: session}
        exchange = local.Exchange(b"")
        await self._app(scope, exchange.receive, exchange.send)
        return exchange.response(call.method, call.url)

    def _scope(self, call: LocalCall, session: OpenSession) -> dict[str, Any]:
        headers = local.raw_headers(b"", call.headers, call.cookies, call.server)
        scope = local.scope_of(call.method, call.path, call.server, headers)
        scope["app"], scope["route"], scope["endpoint"] = self._app, self._route, self._route.endpoint
        scope["path_params"], scope["session"] = {}, session.data
        return scope
