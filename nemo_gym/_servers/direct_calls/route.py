# SPDX-License-Identifier: Apache-2.0
"""A FastAPI route for typical server handlers: one JSON body in, one model out.

Such a handler (`async def f(body: Model, request: Request, response: Response) -> Model`, in any order and number)
needs none of FastAPI's dependency machinery; this route validates, calls and serializes in one go. Everything else
(path and query parameters, `Depends`, streams, forms) is left to FastAPI.
"""

import functools
import inspect
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi.datastructures import DefaultPlaceholder
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from fastapi.params import Body as BodyParam
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym._transport.failures import convert_exit
from nemo_gym._util.json_depth import MAX_DEPTH, is_too_deep
from nemo_gym._util.json_values import UnusableValue, load_json
from nemo_gym.errors import HandlerExit

_OTHER_INJECTIONS = (
    "websocket_param_name",
    "http_connection_param_name",
    "background_tasks_param_name",
    "security_scopes_param_name",
)
_JSON_HEADER = (b"content-type", b"application/json")
_FORM_TYPES = (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data")
RAISED = "nemo_gym.raised"
"""Scope key: what the handler already raised, for the app's exception handlers."""


@dataclass(frozen=True)
class HandlerPlan:
    """How to call one handler."""

    endpoint: Callable[..., Any]
    body_name: str | None
    body: TypeAdapter[Any] | None
    body_type: Any
    body_default: Any
    request_name: str | None
    response_name: str | None
    reply: TypeAdapter[Any] | None
    reply_type: Any


class GymRoute(APIRoute):
    """An APIRoute that handles plain JSON handlers itself; `json_handler` is None for the others."""

    json_handler: "JsonHandler | None" = None

    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        super().__init__(path, endpoint, **kwargs)
        if self.dependant.call is not None and not inspect.iscoroutinefunction(self.dependant.call):
            self.dependant.call = _convert_generator_exit(self.dependant.call)
        plan = _plan_route(self)
        if plan is not None:
            self.app = self.json_handler = JsonHandler(plan, fallback=self.app)

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


def _plan_route(route: APIRoute) -> HandlerPlan | None:
    """Return the plan for a route that needs only body, request and response; None for any other."""
    needs = route.dependant
    if (
        not inspect.iscoroutinefunction(route.endpoint)
        or needs.path_params
        or needs.query_params
        or needs.header_params
        or needs.cookie_params
        or needs.dependencies
        or len(needs.body_params) > 1
        or any(getattr(needs, name, None) for name in _OTHER_INJECTIONS)
        or getattr(route, "_embed_body_fields", False)
        or route.status_code not in (None, 200)
        or _has_custom_reply(route)
    ):
        return None
    body = needs.body_params[0] if needs.body_params else None
    if body is not None and type(body.field_info) is not BodyParam:
        return None
    return HandlerPlan(
        endpoint=route.endpoint,
        body_name=body.name if body else None,
        body=TypeAdapter(body.field_info.annotation or Any) if body else None,
        body_type=body.field_info.annotation if body else None,
        body_default=inspect.Parameter.empty if body is None or body.field_info.is_required() else body.get_default(),
        request_name=needs.request_param_name,
        response_name=needs.response_param_name,
        reply=TypeAdapter(route.response_model) if route.response_field is not None else None,
        reply_type=route.response_model,
    )


def _has_custom_reply(route: APIRoute) -> bool:
    return bool(
        not isinstance(route.response_class, DefaultPlaceholder)
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


class JsonHandler:
    """The ASGI app of one plan."""

    def __init__(self, plan: HandlerPlan, fallback: ASGIApp) -> None:
        self.plan = plan
        self._fallback = fallback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if RAISED in scope:
            raise scope[RAISED]
        if not self.takes(scope):
            return await self._fallback(scope, receive, send)
        reply = await self.reply(scope, receive, send)
        return await reply(scope, receive, send)

    def takes(self, scope: Scope) -> bool:
        """Return whether the request has a body of the kind that `reply` reads."""
        return self.plan.body is None or _sends_json(scope)

    async def reply(self, scope: Scope, receive: Receive, send: Send) -> ASGIApp:
        """Call the handler; calling the result sends its answer."""
        plan = self.plan
        arguments: dict[str, Any] = {}
        injected: Response | None = None
        if plan.request_name:
            request = arguments[plan.request_name] = _Request(scope, receive, send)
            if plan.body_name:
                arguments[plan.body_name] = _read_body(plan, await request.body())
        elif plan.body_name:
            arguments[plan.body_name] = _read_body(plan, await _receive_body(receive))
        if plan.response_name:
            injected = arguments[plan.response_name] = _make_injected_response()
        result = await plan.endpoint(**arguments)
        if isinstance(result, Response):
            return result  # unchanged: FastAPI adds nothing to a response that the handler built
        return _JsonReply(serialize_reply(plan, result), injected)


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
            raise _build_value_error(error) from error
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


class _JsonReply:
    """A finished reply, with what the handler set on its injected response."""

    __slots__ = ("_content", "_injected")

    def __init__(self, content: bytes, injected: Response | None) -> None:
        self._content = content
        self._injected = injected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        injected = self._injected
        status = 200
        headers = [(b"content-length", b"%d" % len(self._content)), _JSON_HEADER]
        if injected is not None:
            status = injected.status_code or 200
            headers.extend(injected.raw_headers)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": self._content})
        if injected is not None and injected.background is not None:
            await injected.background()


def _sends_json(scope: Scope) -> bool:
    kind = _content_type(scope)
    if kind is None:  # a web page can leave the type out; so may programs
        return not _is_from_web_page(scope)
    return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))


def require_json(scope: Scope) -> None:
    """Reject a body of a type that any web page can post to any server without permission."""
    kind = _content_type(scope)
    if kind in _FORM_TYPES or (kind is None and _is_from_web_page(scope)):
        raise HTTPException(415, _explain_not_json(kind))


def _content_type(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind: bytes = value.partition(b";")[0].strip().lower()
            return kind
    return None


def _is_from_web_page(scope: Scope) -> bool:
    return any(name == b"origin" for name, _ in scope["headers"])


def _explain_not_json(kind: bytes | None) -> str:
    named = repr(kind.decode("latin-1")) if kind is not None else "missing"
    return (
        f"the body was not read: its content type is {named}.\n"
        "this endpoint only accepts JSON, because web pages can post other types to any server.\n"
        "hint: send the header `Content-Type: application/json`"
    )


def _read_body(plan: HandlerPlan, raw: bytes) -> Any:
    assert plan.body is not None
    if not raw:
        if plan.body_default is not inspect.Parameter.empty:
            return plan.body_default
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    return validate_body(plan.body, parse_json(raw))


def validate_body(adapter: TypeAdapter[Any], content: Any) -> Any:
    """Return `content` as the adapter's type; report errors the way FastAPI does."""
    try:
        return adapter.validate_python(content, from_attributes=True)
    except ValidationError as error:
        raise build_validation_error(error, content) from error


def build_validation_error(error: ValidationError, content: Any) -> RequestValidationError:
    """Return FastAPI's error for a request body that is not of its type."""
    problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
    return RequestValidationError(problems, body=content)


def parse_json(raw: bytes) -> Any:
    """Return a request body as JSON; report errors the way FastAPI does."""
    try:
        return from_json(raw)  # unlike orjson, it keeps integers of any size and accepts NaN and Infinity
    except ValueError as error:
        if str(error).startswith("recursion limit"):
            raise build_depth_error() from error
        try:
            return load_json(raw)
        except RecursionError as deep:
            raise build_depth_error() from deep
        except UnusableValue as unusable:
            raise _build_value_error(unusable) from unusable
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            position = error.pos if isinstance(error, json.JSONDecodeError) else error.start
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "not UTF-8"
            problem = {"type": "json_invalid", "loc": ("body", position), "msg": "JSON decode error", "input": {}}
            raise RequestValidationError([{**problem, "ctx": {"error": reason}}]) from error


def build_depth_error() -> RequestValidationError:
    """Return the error for a request body whose JSON is nested too deeply to be handled."""
    said = f"The JSON is nested more than {MAX_DEPTH} levels deep, which no part of NeMo Gym handles; flatten it"
    return RequestValidationError([{"type": "json_too_deep", "loc": ("body",), "msg": said, "input": None}])


def _build_value_error(error: UnusableValue) -> RequestValidationError:
    return RequestValidationError([{"type": "json_value", "loc": ("body",), "msg": str(error), "input": None}])


def serialize_reply(plan: HandlerPlan, result: Any) -> bytes:
    """Return a handler's result as the bytes of the reply."""
    if plan.reply is None:
        return _dump_unannotated(result)
    try:
        return plan.reply.dump_json(
            plan.reply.validate_python(result, from_attributes=True), by_alias=True, warnings=False
        )
    except ValidationError as error:
        problems = [{**problem, "loc": ("response", *problem["loc"])} for problem in error.errors(include_url=False)]
        raise ResponseValidationError(problems, body=result) from error


def _dump_unannotated(result: Any) -> bytes:
    try:
        return orjson.dumps(result, default=jsonable_encoder, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:  # a subclass of float, such as numpy's, or an integer of more than 64 bits
        return bytes(JSONResponse(jsonable_encoder(result)).body)
