# SPDX-License-Identifier: Apache-2.0
"""A FastAPI route for the handlers that servers are made of: one JSON body in, one model out.

Such a handler (`async def f(body: Model, request: Request, response: Response) -> Model`, in any order and number)
needs none of FastAPI's dependency machinery; this route validates, calls and serialises in one go. Everything else,
path and query parameters, `Depends`, streams, forms, is left to FastAPI as it is.
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi.datastructures import DefaultPlaceholder
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from fastapi.params import Body as BodyParam
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

_OTHER_INJECTIONS = (
    "websocket_param_name",
    "http_connection_param_name",
    "background_tasks_param_name",
    "security_scopes_param_name",
)
_JSON_HEADER = (b"content-type", b"application/json")


@dataclass(frozen=True)
class _Plan:
    """How to call one handler."""

    endpoint: Callable[..., Any]
    body_name: str | None
    body: TypeAdapter[Any] | None
    body_default: Any
    request_name: str | None
    response_name: str | None
    reply: TypeAdapter[Any] | None


class GymRoute(APIRoute):
    """An APIRoute that handles plain JSON handlers by itself."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **kwargs: Any) -> None:
        super().__init__(path, endpoint, **kwargs)
        plan = _plan_for(self)
        if plan is not None:
            self.app = _JsonHandler(plan, fallback=self.app)


def _plan_for(route: APIRoute) -> _Plan | None:
    """The plan for a route that needs nothing but body, request and response; None for any other."""
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
        or _customised_reply(route)
    ):
        return None
    body = needs.body_params[0] if needs.body_params else None
    if body is not None and type(body.field_info) is not BodyParam:
        return None
    return _Plan(
        endpoint=route.endpoint,
        body_name=body.name if body else None,
        body=TypeAdapter(body.field_info.annotation or Any) if body else None,
        body_default=inspect.Parameter.empty if body is None or body.field_info.is_required() else body.get_default(),
        request_name=needs.request_param_name,
        response_name=needs.response_param_name,
        reply=TypeAdapter(route.response_model) if route.response_field is not None else None,
    )


def _customised_reply(route: APIRoute) -> bool:
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


class _JsonHandler:
    """The ASGI app of one plan."""

    def __init__(self, plan: _Plan, fallback: Any) -> None:
        self._plan = plan
        self._fallback = fallback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        plan = self._plan
        arguments: dict[str, Any] = {}
        if plan.body is not None:
            if not _sends_json(scope):
                await self._fallback(scope, receive, send)
                return
            arguments[plan.body_name or ""] = _validated(plan, await request.body())
        if plan.request_name:
            arguments[plan.request_name] = request
        injected: Response | None = None
        if plan.response_name:
            injected = arguments[plan.response_name] = Response()
            del injected.headers["content-length"]
            injected.status_code = None  # type: ignore[assignment]  # unset: the handler may choose one
        result = await plan.endpoint(**arguments)
        if isinstance(result, Response):
            if injected is not None:
                result.raw_headers.extend(injected.raw_headers)
            await result(scope, receive, send)
            return
        content = _serialised(plan, result)
        status, headers = 200, [(b"content-length", b"%d" % len(content)), _JSON_HEADER]
        if injected is not None:
            status = injected.status_code or 200
            headers.extend(injected.raw_headers)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})
        if injected is not None and injected.background is not None:
            await injected.background()


def _sends_json(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind: bytes = value.partition(b";")[0].strip().lower()
            return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))
    return True


def _validated(plan: _Plan, raw: bytes) -> Any:
    assert plan.body is not None
    if not raw:
        if plan.body_default is not inspect.Parameter.empty:
            return plan.body_default
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    return validated(plan.body, parsed(raw))


def validated(adapter: TypeAdapter[Any], content: Any) -> Any:
    """`content` as the adapter's type; what is wrong with it is reported the way FastAPI does."""
    try:
        return adapter.validate_python(content, from_attributes=True)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
        raise RequestValidationError(problems, body=content) from error


def parsed(raw: bytes) -> Any:
    """A request body as JSON; what is wrong with it is reported the way FastAPI does."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return json.loads(raw)  # takes NaN and Infinity, which orjson refuses
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            position = error.pos if isinstance(error, json.JSONDecodeError) else error.start
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "not UTF-8"
            problem = {"type": "json_invalid", "loc": ("body", position), "msg": "JSON decode error", "input": {}}
            raise RequestValidationError([{**problem, "ctx": {"error": reason}}]) from error


def _serialised(plan: _Plan, result: Any) -> bytes:
    if plan.reply is None:
        return orjson.dumps(result, default=jsonable_encoder, option=orjson.OPT_NON_STR_KEYS)
    try:
        return plan.reply.dump_json(
            plan.reply.validate_python(result, from_attributes=True), by_alias=True, warnings=False
        )
    except ValidationError as error:
        problems = [{**problem, "loc": ("response", *problem["loc"])} for problem in error.errors(include_url=False)]
        raise ResponseValidationError(problems, body=result) from error
