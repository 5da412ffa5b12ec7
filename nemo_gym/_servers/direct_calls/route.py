# SPDX-License-Identifier: Apache-2.0
"""A FastAPI route whose plain JSON handler is called over ASGI or directly, in the same steps.

A plain JSON handler (`async def f(body: Model, request: Request, response: Response) -> Model`, in any order and
number) needs none of FastAPI's dependency machinery: `JsonHandler` validates, calls and serializes in one go.
Everything else (path and query parameters, `Depends`, streams, forms) is left to FastAPI.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from fastapi.datastructures import DefaultPlaceholder
from fastapi.exceptions import RequestValidationError
from fastapi.params import Body as BodyParam
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym._servers.direct_calls.call import AsgiExchange, build_scope, encode_headers
from nemo_gym._servers.direct_calls.json_bodies import (
    build_depth_error,
    build_value_error,
    parse_json,
    sends_json,
    serialize_reply,
    validate_body,
)
from nemo_gym._servers.direct_calls.object_request import OPEN_SESSION, ModelJsonResponse, ObjectRequest
from nemo_gym._servers.direct_calls.objects import (
    OBJECT_TYPES,
    copy_for_receiver,
    dump_around_objects,
    list_object_fields,
    list_read_fields,
)
from nemo_gym._servers.direct_calls.response import InProcessResponse, LazyCookies, ObjectResponse, Session
from nemo_gym._servers.direct_calls.running_apps import InProcessCall, ServerCall
from nemo_gym._transport import http_calls as http
from nemo_gym._transport.call_errors import ServerDeadlineExceeded
from nemo_gym._transport.deadline import open_deadline
from nemo_gym._transport.failures import convert_exit
from nemo_gym._util.json_depth import is_too_deep
from nemo_gym._util.json_values import UnusableValue, load_json
from nemo_gym.errors import HandlerExit

_OTHER_INJECTIONS = (
    "websocket_param_name",
    "http_connection_param_name",
    "background_tasks_param_name",
    "security_scopes_param_name",
)
_JSON_HEADER = (b"content-type", b"application/json")
RAISED = "nemo_gym.raised"
"""Scope key: what the handler already raised, for the app's exception handlers."""


class GymRoute(APIRoute):
    """An APIRoute that handles plain JSON handlers itself; `json_handler` is None for the others."""

    json_handler: "JsonHandler | None" = None

    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        super().__init__(path, endpoint, **kwargs)
        if self.dependant.call is not None and not inspect.iscoroutinefunction(self.dependant.call):
            self.dependant.call = _convert_generator_exit(self.dependant.call)
        if _is_plain(self):
            self.app = self.json_handler = JsonHandler(self, fallback=self.app)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler; what leaves it is an ordinary error, even in a task that a middleware started.

        A body that is nested too deeply gets a 422, where FastAPI would answer 400.
        """
        handle = super().get_route_handler()

        async def handle_request(request: Request) -> Response:
            try:
                return await handle(_Request(request.scope, request.receive, request._send))
            except HTTPException as error:
                if isinstance(error.__cause__, RequestValidationError):
                    raise error.__cause__ from None
                raise
            except BaseException as raised:
                ending = convert_exit(raised)
                if ending is raised:
                    raise
                raise ending from raised

        return handle_request


def _convert_generator_exit(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler that runs in a thread: asyncio would close the coroutine that waits for a GeneratorExit."""

    @functools.wraps(handler)
    def handle(*args: Any, **kwargs: Any) -> Any:
        try:
            return handler(*args, **kwargs)
        except GeneratorExit as raised:
            raise HandlerExit(repr(raised)).with_traceback(raised.__traceback__) from raised

    return handle


def _is_plain(route: APIRoute) -> bool:
    """Return whether a route needs only body, request and response, and answers with JSON and nothing else."""
    needs = route.dependant
    return not (
        not inspect.iscoroutinefunction(route.endpoint)
        or needs.path_params
        or needs.query_params
        or needs.header_params
        or needs.cookie_params
        or needs.dependencies
        or len(needs.body_params) > 1
        or any(type(body.field_info) is not BodyParam for body in needs.body_params)
        or any(getattr(needs, name, None) for name in _OTHER_INJECTIONS)
        or getattr(route, "_embed_body_fields", False)
        or route.status_code not in (None, 200)
        or not isinstance(route.response_class, DefaultPlaceholder)
        or route.response_class.value is not JSONResponse
        or route.response_model_include
        or route.response_model_exclude
        or not route.response_model_by_alias
        or route.response_model_exclude_unset
        or route.response_model_exclude_defaults
        or route.response_model_exclude_none
        or getattr(route, "stream_item_field", None)
        or getattr(route, "is_sse_stream", False)
        or getattr(route, "is_json_stream", False)
    )


class Sessions(Protocol):
    """The session middleware, for a direct call."""

    @property
    def cookie_name(self) -> str:
        """The name of the session cookie."""

    def open(self, cookie: str | None) -> Session:
        """Return the session that `cookie` stands for, or a new one."""


class BodyBound(Protocol):
    """The body limit, for a direct call."""

    def check_size(self, size: int) -> None:
        """Raise if a body of `size` bytes exceeds what the server accepts."""


class Stack(NamedTuple):
    """An app, and what it has around its routes."""

    app: ASGIApp
    sessions: Sessions
    bound: BodyBound


class JsonHandler:
    """The handler of one route, called over ASGI (`__call__`) or directly (`answer`), in the same steps.

    step              over ASGI                              directly
    open the session  SessionCookieMiddleware                the same middleware's `open`; a cookie only on demand
    bound the body    BodyLimit                              the same middleware's `check_size`
    read the body     parsed and validated                   the same, apart from objects, which are copied
    call the handler  `_call_endpoint`                       `_call_endpoint`
    build the reply   `serialize_reply`                      the same, or an object that becomes bytes on demand
    handle an error   exception handlers, ErrorsAsJson       the whole app, whose route raises it again
    """

    def __init__(self, route: APIRoute, fallback: ASGIApp) -> None:
        needs = route.dependant
        self._route = route
        self._endpoint = route.endpoint
        self._fallback = fallback
        self._request_name = needs.request_param_name
        self._response_name = needs.response_param_name
        self._body_name: str | None = None
        self._body: TypeAdapter[Any] = TypeAdapter(Any)
        self._body_default: Any = inspect.Parameter.empty
        self._object_names: tuple[str, ...] = ()
        self._read_names: frozenset[str] | None = None
        for body in needs.body_params:
            kind: Any = body.field_info.annotation
            self._body_name = body.name
            self._body = TypeAdapter(kind or Any)
            if not body.field_info.is_required():
                self._body_default = body.get_default()
            self._object_names = list_object_fields(kind)
            self._read_names = list_read_fields(kind)
        self._reply_type = route.response_model
        self._reply: TypeAdapter[Any] | None = None
        if route.response_field is not None:
            self._reply = TypeAdapter(route.response_model)

    # --- over ASGI ----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if RAISED in scope:
            raise scope[RAISED]
        if self._body_name is not None and not sends_json(scope):
            return await self._fallback(scope, receive, send)
        request = None
        body = None
        injected = None
        if self._request_name is not None:
            request = _Request(scope, receive, send)
        if self._response_name is not None:
            injected = _make_injected_response()
        try:
            if self._body_name is not None:
                body = self._read_body(await (request.body() if request is not None else _receive_body(receive)))
            result = await self._call_endpoint(request, body, injected)
        except BaseException as raised:
            ending = convert_exit(raised)
            if ending is raised:
                raise
            raise ending from raised  # an exit would end the event loop, in a task that a middleware started
        if isinstance(result, Response):
            return await result(scope, receive, send)  # unchanged: FastAPI adds nothing to what the handler built
        await _send_json(send, serialize_reply(self._reply, result), injected)
        return None

    def _read_body(self, raw: bytes) -> Any:
        if raw:
            return validate_body(self._body, parse_json(raw))
        if self._body_default is not inspect.Parameter.empty:
            return self._body_default
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])

    # --- both ---------------------------------------------------------------------------------------------------------

    async def _call_endpoint(self, request: Request | None, body: Any, injected: Response | None) -> Any:
        arguments: dict[str, Any] = {}
        if self._request_name is not None:
            arguments[self._request_name] = request
        if self._body_name is not None:
            arguments[self._body_name] = body
        if self._response_name is not None:
            arguments[self._response_name] = injected
        return await self._endpoint(**arguments)

    # --- directly -----------------------------------------------------------------------------------------------------

    @property
    def takes_direct_calls(self) -> bool:
        """Whether `answer` may stand in for the whole app: not for a handler that sets headers on its response."""
        return self._response_name is None

    async def answer(self, stack: Stack, call: InProcessCall) -> InProcessResponse:
        """Call the handler and return its reply; if it raises, return the reply of the whole app.

        Raise ServerDeadlineExceeded if that takes longer than the call may take.
        """
        session = _open_session(stack.sessions, call.cookies)
        request = None
        body = None
        deadline = open_deadline(call.timeout_s)
        try:
            with ServerCall(call.server_name):
                try:
                    if self._request_name is not None:
                        make_scope = functools.partial(self._build_scope, stack, call, session)
                        request = ObjectRequest(make_scope, call.json, has_cookies=bool(call.cookies))
                    if self._body_name is not None:
                        body = self._read_value(call.json, stack.bound)
                    result = await self._call_endpoint(request, body, None)
                    if request is not None:
                        session = request.find_session(session)
                    if not isinstance(result, Response):
                        return ObjectResponse(call.method, call.url, self._dump_result(result), session)
                    if type(result) is ModelJsonResponse:
                        return ObjectResponse(call.method, call.url, result.dump(), session)
                    # A response that the handler built writes its own headers and body.
                    exchange = AsgiExchange(b"")
                    scope = request.scope if request is not None else self._build_scope(stack, call, session)
                    await result(scope, exchange.receive, exchange.send)
                    exchange.headers.append((b"set-cookie", session.set_cookie().encode("latin-1")))
                    return exchange.build_response(call.method, call.url)
                except BaseException as raised:
                    if request is not None:
                        session = request.find_session(session)
                    exchange = AsgiExchange(b"")
                    scope = self._build_scope(stack, call, session)
                    scope[RAISED] = convert_exit(raised)
                    await stack.app(scope, exchange.receive, exchange.send)
                    return exchange.build_response(call.method, call.url)
        except asyncio.CancelledError as error:
            if deadline is not None and deadline.has_cancelled():
                raise ServerDeadlineExceeded(call.method, call.url, call.timeout_s) from error
            raise
        finally:
            if deadline is not None:
                deadline.end()

    def _read_value(self, json: Any, bound: BodyBound) -> Any:
        if type(json) is dict:
            if self._read_names is not None:
                json = {name: part for name, part in json.items() if name in self._read_names}
            objects = {name: json[name] for name in self._object_names if type(json.get(name)) in OBJECT_TYPES}
            if objects or not json:
                rest = {name: part for name, part in json.items() if name not in objects}
                content = parse_json(_encode_bounded(rest, bound)) if rest else {}
                for name, value in objects.items():
                    content[name] = copy_for_receiver(value)
                try:
                    return self._body.validate_python(content)
                except ValidationError:
                    pass  # as bytes it may fit after all; if not, the error is the usual one
        return self._read_body(_encode_bounded(json, bound))

    def _dump_result(self, result: Any) -> bytes | dict[str, Any]:
        if type(result) is self._reply_type:
            around = dump_around_objects(result)
            if around is not None:
                return around
        return serialize_reply(self._reply, result)

    def _build_scope(self, stack: Stack, call: InProcessCall, session: Session) -> dict[str, Any]:
        headers = encode_headers(b"", call.headers, call.cookies, call.address)
        scope = build_scope(call.method, call.path, call.address, headers)
        scope["app"] = stack.app
        scope["route"] = self._route
        scope["endpoint"] = self._endpoint
        # A handler that looks into a session gets its own copy: the caller may send the same cookies again.
        is_callers = isinstance(call.cookies, LazyCookies) and call.cookies.session is session
        opened = session.reopen() if is_callers else session
        scope["path_params"] = {}
        scope["session"] = opened.data
        scope[OPEN_SESSION] = opened
        return scope


def _open_session(sessions: Sessions, cookies: Mapping[str, Any] | None) -> Session:
    if not cookies:
        return sessions.open(None)
    if isinstance(cookies, LazyCookies) and cookies.session.owner is sessions:
        return cookies.session
    held = cookies.get(sessions.cookie_name)
    return sessions.open(getattr(held, "value", held))


def _encode_bounded(json: Any, bound: BodyBound) -> bytes:
    body = http.encode_json(json)
    bound.check_size(len(body))
    return body


class _Request(Request):
    """A request whose body is read without a generator when all of it is wanted.

    Its JSON is never nested deeper than a reply could be.
    """

    async def body(self) -> bytes:
        if self._stream_consumed or hasattr(self, "_body"):
            return await super().body()
        self._body = await _receive_body(self._receive)
        self._stream_consumed = True
        return self._body

    async def json(self) -> Any:
        try:
            value = load_json(await self.body())
        except RecursionError as error:
            raise build_depth_error() from error
        except UnusableValue as error:
            raise build_value_error(error) from error
        if is_too_deep(await self.body(), value):
            raise build_depth_error()
        return value


async def _receive_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return b"".join((*parts, part)) if parts else part
        parts.append(part)


def _make_injected_response() -> Response:
    """Return the response on which a handler may set headers, cookies and a status."""
    response = Response()
    del response.headers["content-length"]
    response.status_code = None  # type: ignore[assignment]  # unset: the handler may choose one
    return response


async def _send_json(send: Send, content: bytes, injected: Response | None) -> None:
    """Send a finished reply, with what the handler set on its injected response."""
    status = 200
    headers = [(b"content-length", b"%d" % len(content)), _JSON_HEADER]
    if injected is not None:
        status = injected.status_code or 200
        headers.extend(injected.raw_headers)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
    if injected is not None and injected.background is not None:
        await injected.background()
