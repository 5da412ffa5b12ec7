# SPDX-License-Identifier: Apache-2.0
"""The fast path: a call from a server in the same process, directly to a plain JSON handler.

It bypasses the middleware, and exists only if all of it is ours: then what the middleware would do is known and done
here. The whole stack answers for a handler that raises, as it does for every other request.
"""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym._servers.direct_calls.call import AsgiExchange, build_scope, encode_headers
from nemo_gym._servers.direct_calls.objects import (
    OBJECT_TYPES,
    copy_for_receiver,
    dump_around_objects,
    list_object_fields,
    list_read_fields,
)
from nemo_gym._servers.direct_calls.response import InProcessResponse, LazyCookies, ObjectResponse, Session
from nemo_gym._servers.direct_calls.route import (
    RAISED,
    GymRoute,
    HandlerPlan,
    parse_json,
    serialize_reply,
    validate_body,
)
from nemo_gym._servers.direct_calls.running_apps import InProcessCall, ServerCall
from nemo_gym._transport import http_calls as http
from nemo_gym._transport.call_errors import ServerDeadlineExceeded
from nemo_gym._transport.deadline import open_deadline
from nemo_gym._transport.failures import convert_exit
from nemo_gym._wire.schema.replies import NeMoGymResponse
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming

OPEN_SESSION = "nemo_gym.session"
"""Scope key: the session, if it is already open."""
_ANY_SCOPE = {"type": "http"}


class Sessions(Protocol):
    """The part of a session middleware that a fast path replaces."""

    @property
    def cookie_name(self) -> str:
        """The name of the session cookie."""

    def open(self, cookie: str | None) -> Session:
        """Return the session that `cookie` stands for, or a new one."""


class BodyBound(Protocol):
    """The part of a body limit that a fast path replaces."""

    def check_size(self, size: int) -> None:
        """Raise if a body of `size` bytes exceeds what the server accepts."""


class _ObjectBody:
    """The body of a request that came as a value; it becomes bytes for whoever reads bytes."""

    __slots__ = ("_bytes", "_is_received", "_value")

    def __init__(self, value: Any) -> None:
        self._value = value
        self._is_received = False
        self._bytes: bytes | None = None

    def encode(self) -> bytes:
        if self._bytes is None:
            self._bytes = http.encode_json(self._value)
        return self._bytes

    async def receive(self) -> Message:
        if self._is_received:
            # A local caller does not hang up halfway: it is cancelled together with the handler.
            await asyncio.get_running_loop().create_future()
        self._is_received = True
        return {"type": "http.request", "body": self.encode(), "more_body": False}


class ObjectRequest(Request):
    """A request whose body is a value until someone reads it, and whose scope is built on demand."""

    def __init__(self, make_scope: Callable[[], dict[str, Any]], value: Any, *, has_cookies: bool = True) -> None:
        self._make_scope = make_scope
        self._scope = dict[str, Any]()
        if not has_cookies:
            self._cookies = dict[str, str]()
        # Not a method: a request that refers to itself is only freed by the cycle collector.
        self._object_body = _ObjectBody(value)
        super().__init__(_ANY_SCOPE, self._object_body.receive)
        self.value = value

    @property
    def scope(self) -> MutableMapping[str, Any]:
        if not self._scope:
            self._scope = self._make_scope()
        return self._scope

    @scope.setter
    def scope(self, scope: MutableMapping[str, Any]) -> None:
        if scope is not _ANY_SCOPE:
            self._scope = dict(scope)

    def find_session(self, otherwise: Session) -> Session:
        """Return the session as the handler left it; `otherwise` if the handler has not looked at it."""
        session: Session = self._scope.get(OPEN_SESSION, otherwise)
        if self._scope:
            session.data = self._scope["session"]
        return session

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = self._object_body.encode()
        return self._body


def read_params(request: Request) -> NeMoGymResponseCreateParamsNonStreaming | None:
    """Return the create params that a caller in this process sent; None if they must be read from the body."""
    value = request.value if isinstance(request, ObjectRequest) else None
    if type(value) is not NeMoGymResponseCreateParamsNonStreaming:
        return None
    given = value.__dict__
    try:
        # Only values that are not yet instances of their class are validated, and lists are new ones.
        return NeMoGymResponseCreateParamsNonStreaming.model_validate(
            {name: given[name] for name in value.__pydantic_fields_set__ if name in given}
        )
    except ValidationError:
        return None


class ModelJsonResponse(Response):
    """A model as JSON, with status 200 and nothing else. It is encoded when it is sent over a socket."""

    def __init__(self, value: BaseModel) -> None:
        self.status_code = 200
        self.background = None
        self.value = value

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.body = self.value.model_dump_json().encode()
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]
        await super().__call__(scope, receive, send)


class HandlerFastPath:
    """Calls the handler of one route."""

    def __init__(self, app: ASGIApp, route: GymRoute, plan: HandlerPlan, sessions: Sessions, bound: BodyBound) -> None:
        self._app = app
        self._route = route
        self._plan = plan
        self._sessions = sessions
        self._bound = bound
        self._object_names = list_object_fields(plan.body_type)
        self._read_names = list_read_fields(plan.body_type)

    async def answer(self, call: InProcessCall) -> InProcessResponse:
        """Call the handler and return its reply; if it raises, return the reply of the whole app.

        Raise ServerDeadlineExceeded if that takes longer than the call may take.
        """
        plan = self._plan
        json = call.json
        cookies = call.cookies
        session = self._open_session(cookies)
        request = None
        arguments: dict[str, Any] = {}
        deadline = open_deadline(call.timeout_s)
        try:
            with ServerCall(call.server_name):
                try:
                    if plan.request_name:
                        request = ObjectRequest(
                            partial(self._build_scope, call, session), json, has_cookies=bool(cookies)
                        )
                        arguments[plan.request_name] = request
                    if plan.body_name:
                        arguments[plan.body_name] = self._read_body(json)
                    result = await plan.endpoint(**arguments)
                    if request is not None:
                        session = request.find_session(session)
                    if isinstance(result, Response) and type(result) is not ModelJsonResponse:
                        return await self._send_response(call, session, request, result)
                    return ObjectResponse(call.method, call.url, self._dump_result(result), session)
                except BaseException as raised:
                    return await self._answer_error(call, session, request, convert_exit(raised))
        except asyncio.CancelledError as error:
            if deadline is not None and deadline.has_cancelled():
                raise ServerDeadlineExceeded(call.method, call.url, call.timeout_s) from error
            raise
        finally:
            if deadline is not None:
                deadline.end()

    async def _answer_error(
        self, call: InProcessCall, session: Session, request: ObjectRequest | None, error: BaseException
    ) -> InProcessResponse:
        """Let the whole app handle what the handler raised."""
        if request is not None:
            session = request.find_session(session)
        scope = self._build_scope(call, session)
        scope[RAISED] = error
        exchange = AsgiExchange(b"")
        await self._app(scope, exchange.receive, exchange.send)
        return exchange.build_response(call.method, call.url)

    def _open_session(self, cookies: Mapping[str, Any] | None) -> Session:
        if not cookies:
            return self._sessions.open(None)
        if isinstance(cookies, LazyCookies) and cookies.session.owner is self._sessions:
            return cookies.session
        held = cookies.get(self._sessions.cookie_name)
        return self._sessions.open(getattr(held, "value", held))

    def _read_body(self, json: Any) -> Any:
        adapter = self._plan.body
        assert adapter is not None
        if type(json) is dict:
            if self._read_names is not None:
                json = {name: part for name, part in json.items() if name in self._read_names}
            objects = {name: json[name] for name in self._object_names if type(json.get(name)) in OBJECT_TYPES}
            if objects or not json:
                rest = {name: part for name, part in json.items() if name not in objects}
                content = parse_json(self._encode_bounded(rest)) if rest else {}
                for name, value in objects.items():
                    content[name] = copy_for_receiver(value)
                try:
                    return adapter.validate_python(content)
                except ValidationError:
                    pass  # as bytes it may fit after all; if not, the error is the usual one
        return validate_body(adapter, parse_json(self._encode_bounded(json)))

    def _encode_bounded(self, json: Any) -> bytes:
        body = http.encode_json(json)
        self._bound.check_size(len(body))
        return body

    def _dump_result(self, result: Any) -> Any:
        if type(result) is ModelJsonResponse:
            value: Any = result.value
            return value if type(value) is NeMoGymResponse else value.model_dump_json().encode()
        parts = dump_around_objects(result) if type(result) is self._plan.reply_type else None
        return parts if parts is not None else serialize_reply(self._plan, result)

    async def _send_response(
        self, call: InProcessCall, session: Session, request: ObjectRequest | None, response: Response
    ) -> InProcessResponse:
        """Let a response that the handler built write its own headers and body."""
        exchange = AsgiExchange(b"")
        scope = request.scope if request is not None else self._build_scope(call, session)
        await response(scope, exchange.receive, exchange.send)
        exchange.headers.append((b"set-cookie", session.set_cookie().encode("latin-1")))
        return exchange.build_response(call.method, call.url)

    def _build_scope(self, call: InProcessCall, session: Session) -> dict[str, Any]:
        headers = encode_headers(b"", call.headers, call.cookies, call.address)
        scope = build_scope(call.method, call.path, call.address, headers)
        scope["app"] = self._app
        scope["route"] = self._route
        scope["endpoint"] = self._route.endpoint
        # A handler that looks into a session gets its own copy: the caller may send the same cookies again.
        is_callers = isinstance(call.cookies, LazyCookies) and call.cookies.session is session
        opened = session.reopen() if is_callers else session
        scope["path_params"] = {}
        scope["session"] = opened.data
        scope[OPEN_SESSION] = opened
        return scope
