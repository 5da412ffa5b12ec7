# SPDX-License-Identifier: Apache-2.0
"""Errors on the paths of OpenAI's and Anthropic's APIs, with the status and the body that their SDKs understand.

They are for outside programs. Our own client gets a 500 with a text for the model, and the cause in a header: see
`guard`. What the model's endpoint answered keeps its status and its error; a body that does not fit is a 400, as in
both APIs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import orjson
from pydantic import ValidationError
from starlette.types import Message, Scope, Send

from nemo_gym._transport.call_errors import ServerResponseError, quote_body
from nemo_gym._transport.callers import is_own_call
from nemo_gym._transport.failures import decode_failure
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.rollout_paths import split_rollout_prefix
from nemo_gym._wire.schema.format_errors import InvalidModelReply
from nemo_gym.errors import ServerCallError

Api = Literal["openai", "anthropic"]
OUTSIDE_API = "nemo_gym.outside_api"
"""Scope key: the API that an outside program calls, whose errors it gets."""

_API_PATH = re.compile(r"(?:/sessions/[^/]+)?/v1/(messages(?:/|$))?")
_TOO_LONG = "context_length_exceeded"
_TOO_LONG_SIGNS = re.compile(rf"{_TOO_LONG}|context length|prompt is too long", re.IGNORECASE)
_BAD_REQUEST = 400
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(frozen=True)
class ApiError:
    """An error, before it has the shape of an API."""

    status: int
    message: str
    type: str | None = None
    param: str | None = None
    code: str | None = None
    retry_after: str = ""

    def encode(self, api: Api) -> bytes:
        """Return the body that the SDKs of `api` read."""
        code = self.code
        message = self.message
        if self.status == _BAD_REQUEST and _TOO_LONG_SIGNS.search(f"{code} {message}"):
            code = _TOO_LONG
        body: dict[str, Any]
        if api == "anthropic":
            otherwise = "invalid_request_error"
            if self.status >= 500:
                otherwise = "api_error"
            # Clients know a conversation that has grown too long by these words.
            told = message
            if code == _TOO_LONG:
                told = f"prompt is too long: {message}"
            error = {"type": _ANTHROPIC_TYPES.get(self.status, otherwise), "message": told}
            body = {"type": "error", "error": error, "request_id": None}
        else:
            otherwise = "invalid_request_error"
            if self.status >= 500:
                otherwise = "server_error"
            kind = self.type or _OPENAI_TYPES.get(self.status, otherwise)
            body = {"error": {"message": message, "type": kind, "param": self.param, "code": code}}
        return KNOWN_SECRETS.mask_bytes(orjson.dumps(body))


def find_api(scope: Scope) -> Api | None:
    """Return the API that an outside program calls; None for our own client, and for paths of neither API."""
    path = _API_PATH.match(split_rollout_prefix(scope["path"]).rest)
    if path is None or is_own_call(scope):
        return None
    is_anthropic = path[1] is not None or any(name == b"anthropic-version" for name, _ in scope["headers"])
    return "anthropic" if is_anthropic else "openai"


def read_error(error: BaseException, text: str) -> ApiError:
    """Return what an API tells of `error`, which a handler raised and `text` describes."""
    if isinstance(error, ServerResponseError):
        failure = decode_failure(error.failure)
        if failure is None:
            return _read_refusal(error.status, error.response_content, error.retry_after)
        # Another of our servers has passed on what happened to it.
        status = int(failure.cause) if failure.cause.isdigit() else error.status
        return ApiError(status, failure.message)
    if isinstance(error, aiohttp.ClientResponseError) and error.status >= 400:
        return _read_refusal(error.status, getattr(error, "response_content", b""))
    # What the SDK of OpenAI raises; it is installed only where a server uses it.
    refusal = getattr(error, "response", None)
    if refusal is not None and isinstance(getattr(error, "status_code", None), int):
        return _read_refusal(refusal.status_code, refusal.content, refusal.headers.get("retry-after", ""))
    if isinstance(error, TimeoutError):
        return ApiError(504, text)
    if isinstance(error, ServerCallError | InvalidModelReply | ConnectionError):
        return ApiError(502, text)
    is_request = isinstance(error, ValidationError) and error.title.endswith("CreateParamsNonStreaming")
    if isinstance(error, NotImplementedError) or is_request:
        return ApiError(_BAD_REQUEST, text)
    return ApiError(500, text)


def _read_refusal(status: int, body: bytes, retry_after: str = "") -> ApiError:
    """Return the error in the reply of a model's endpoint."""
    try:
        sent = orjson.loads(body)
    except orjson.JSONDecodeError:
        sent = None
    told = sent.get("error", sent.get("detail", sent)) if isinstance(sent, dict) else None
    if isinstance(told, str):
        told = {"message": told}
    if not isinstance(told, dict) or not isinstance(told.get("message"), str):
        return ApiError(status, f"the model's endpoint answered {status}: {quote_body(body)}", retry_after=retry_after)
    texts = {name: told[name] for name in ("type", "param", "code") if isinstance(told.get(name), str)}
    return ApiError(status, told["message"], **texts, retry_after=retry_after)


class ErrorTranslator:
    """Sends on what an app sends; an error reply gets the shape of `api`."""

    def __init__(self, send: Send, api: Api) -> None:
        self._send = send
        self._api = api
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._start = message
            return
        if self._start is None:
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            await self._send_error(self._start)

    async def _send_error(self, start: Message) -> None:
        try:
            sent = orjson.loads(self._body)
        except orjson.JSONDecodeError:
            sent = self._body.decode(errors="replace")
        if not (isinstance(sent, Mapping) and "error" in sent):
            # A request that does not fit is a 422 in FastAPI, and a 400 in both APIs.
            error = _read_detail(_BAD_REQUEST if start["status"] == 422 else start["status"], sent)
            self._body = error.encode(self._api)
            start["status"] = error.status
            headers = [pair for pair in start["headers"] if pair[0] not in (b"content-length", b"content-type")]
            length = b"%d" % len(self._body)
            start["headers"] = [*headers, (b"content-length", length), (b"content-type", b"application/json")]
        await self._send(start)
        await self._send({"type": "http.response.body", "body": self._body})


def _read_detail(status: int, sent: Any) -> ApiError:
    detail = sent.get("detail", sent) if isinstance(sent, Mapping) else sent
    if not (isinstance(detail, list) and all(isinstance(problem, Mapping) for problem in detail)):
        return ApiError(status, detail if isinstance(detail, str) else orjson.dumps(detail).decode())
    if detail and detail[0].get("type") == "json_invalid":
        return ApiError(
            status, f"the body is not JSON: {detail[0]['ctx']['error']}, at character {detail[0]['loc'][1]}"
        )
    places = [".".join(str(step) for step in problem.get("loc", ())[1:]) for problem in detail]
    told = [f"{place}: {problem.get('msg')}" for place, problem in zip(places, detail, strict=True)]
    return ApiError(status, "; ".join(told), param=next(filter(None, places), None))
