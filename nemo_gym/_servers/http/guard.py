# SPDX-License-Identifier: Apache-2.0
"""What stands in front of every handler: errors become JSON, and bodies have a size bound. Pure ASGI.

The text of a 500 is what a model reads as its tool's output, so it says what happened in one line; the traceback goes
to the log.
"""

import logging
import traceback
from collections.abc import Callable
from typing import Any

import aiohttp
import orjson
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym._servers.direct_calls.json_bodies import build_depth_error
from nemo_gym._servers.http.api_errors import OUTSIDE_API, ErrorTranslator, find_api, read_error
from nemo_gym._transport.deadline import await_within, read_seconds_left
from nemo_gym._transport.failures import HEADER, FailureKind, build_failure, convert_exit
from nemo_gym._util.known_secrets import KNOWN_SECRETS, describe_error
from nemo_gym._util.message_throttle import MessageThrottle
from nemo_gym._util.rollout_paths import split_rollout_prefix
from nemo_gym.errors import GymError, RolloutFailure, ServerBlocked, ServerCallError

LOG = logging.getLogger(__name__)
_FAILED_CALLS = MessageThrottle(every_s=10.0)
_GRACE_S = 1.0
"""How much longer than its caller a call may last, so that the caller reports its own deadline."""


class ErrorsAsJson:
    """Turns what a handler raises into a 500 whose body is a JSON string, or into the error of an API: `api_errors`."""

    def __init__(
        self, app: ASGIApp, *, server_name: str, kind: FailureKind = "agent", server_class: str = "Server"
    ) -> None:
        self.app = app
        self._server_name = server_name
        self._kind = kind
        self._full_name = f"{server_class}___{server_name}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = False
        api = find_api(scope)
        if api is not None:
            scope[OUTSIDE_API] = api
            send = ErrorTranslator(send, api)
        left_s = read_seconds_left(scope["headers"])

        async def note_and_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            work = self.app(scope, receive, note_and_send)
            # A caller that gave up is not noticed otherwise, and what it asked for would hold on to its connections.
            if left_s is not None:
                work = await_within(left_s + _GRACE_S, scope["method"], scope["path"], work)
            await work
        except BaseException as raised:
            error = convert_exit(raised)
            if not started and _ran_out_of_stack_in_json(error):
                # The handler has read the body by itself: what is wrong is the request.
                return await json_reply(422, {"detail": build_depth_error().errors()})(scope, receive, send)
            self._log(scope, error)
            if started:
                raise error from error.__cause__  # part of a reply is out: only a broken connection tells the client
            text = describe(error, self._full_name)
            reply: Response = json_reply(500, text)
            if api is not None:
                told = read_error(error, text)
                reply = Response(told.encode(api), told.status, media_type="application/json")
                if told.retry_after:
                    reply.headers["retry-after"] = told.retry_after
            verifies = split_rollout_prefix(scope["path"]).rest == "/verify"
            kind: FailureKind = "verifier" if verifies else self._kind
            reply.headers[HEADER] = build_failure(error, kind, f"{self._server_name}{scope['path']}").encode()
            await reply(scope, receive, send)
        return None

    def _log(self, scope: Scope, error: BaseException) -> None:
        # The server that failed first has said it already.
        level = logging.DEBUG if getattr(error, "failure", "") else logging.ERROR
        # A failed call is logged in one line: its traceback would only lead to the call.
        if not isinstance(error, ServerCallError | RolloutFailure | ServerBlocked):
            where = self._server_name, scope["method"], scope["path"]
            LOG.log(level, "%s: %s %s failed: %s", *where, describe_error(error), exc_info=error)
            return
        path = split_rollout_prefix(scope["path"]).rest
        # A wrong key fails every call in the same way, and each caller gets the message.
        alike = self._server_name, path, level, type(error), getattr(error, "status", getattr(error, "kind", ""))
        suppressed = _FAILED_CALLS.admit(alike)
        if suppressed is not None:
            if suppressed:
                more = f" ({suppressed} more like it since the last such line)"
            else:
                more = ""
            LOG.log(level, "%s: %s %s failed: %s%s", self._server_name, scope["method"], path, error, more)


def _ran_out_of_stack_in_json(error: BaseException) -> bool:
    if not isinstance(error, RecursionError):
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__") == "json.decoder"


def describe(error: BaseException, full_name: str) -> str:
    """One line for the caller, as models and agents written for NeMo Gym know it.

    If another server failed, it is that server's body; which call failed and with which status is in the failure header
    and the log.
    """
    if isinstance(error, aiohttp.ClientResponseError):
        content = getattr(error, "response_content", None)
        inner = content if isinstance(content, bytes) else error.message.encode()
        return KNOWN_SECRETS.mask(f"Hit an exception in {full_name} calling an inner server: {inner!r}")
    if isinstance(error, ValidationError):
        return KNOWN_SECRETS.mask(str(error))
    # Our own errors are written for people: what happened, what we know, what to do.
    if isinstance(error, GymError | ServerBlocked):
        return KNOWN_SECRETS.mask(f"{type(error).__name__}: {error}")
    return describe_error(error)


class BodyLimit:
    """Refuses a request whose body is larger than `limit_bytes`, before it is held in memory."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int) -> None:
        self.app = app
        self.limit_bytes = limit_bytes

    def check_size(self, size: int) -> None:
        """Raise if a body of `size` bytes is more than the server takes."""
        if size > self.limit_bytes:
            raise BodyTooLarge(size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        declared = b""
        for name, value in scope["headers"]:
            if name == b"content-length":
                declared = value
                break
        if declared.isdigit():
            if int(declared) > self.limit_bytes:
                return await self._refuse(int(declared))(scope, receive, send)
            return await self.app(scope, receive, send)
        received = 0

        async def receive_and_count() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            self.check_size(received)
            return message

        try:
            return await self.app(scope, receive_and_count, send)
        except BodyTooLarge as error:
            return await self._refuse(error.size)(scope, receive, send)

    def _refuse(self, size: int) -> Response:
        return json_reply(
            413,
            {
                "detail": f"the request body has {size} bytes or more; this server takes at most {self.limit_bytes}. "
                "hint: raise `max_request_body_bytes` in the config of the server"
            },
        )


class BodyTooLarge(Exception):
    """A body of `size` bytes, or at least so many, is more than the server takes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def make_validation_handler(on_error: Callable[[str], None]) -> Callable[[Request, Exception], Any]:
    """Return a handler for bad request bodies: the standard 422, with contexts that are always JSON."""

    async def reply(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = []
        for problem in error.errors():
            if context := problem.get("ctx"):
                problem = {**problem, "ctx": {key: str(value) for key, value in context.items()}}
            problems.append(jsonable_encoder(problem, custom_encoder={bytes: repr}))
        fields = "; ".join(f"{'.'.join(map(str, p.get('loc', ())))}: {p.get('msg')}" for p in problems[:5])
        on_error(f"{request.method} {request.url.path}: invalid body: {fields}")
        return json_reply(422, {"detail": problems})

    return reply


class _OrjsonResponse(JSONResponse):
    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, default=str, option=orjson.OPT_NON_STR_KEYS)


def json_reply(status: int, content: Any) -> JSONResponse:
    """Return `content` as a JSON response."""
    return _OrjsonResponse(content, status_code=status)
