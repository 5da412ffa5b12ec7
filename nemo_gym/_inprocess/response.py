# SPDX-License-Identifier: Apache-2.0
"""What a reply says: its body, its JSON, or the error that its status stands for.

Tests hand in objects that only look like a response: one of `read()`, `content.read()` and `json()`, a status, and an
error of their own. These are read as far as they go, and their own error is raised.
"""

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

import aiohttp
import orjson
from pydantic import BaseModel

from nemo_gym._inprocess.call import LocalResponse
from nemo_gym._inprocess.objects import HandedResponse
from nemo_gym._transport.errors import InvalidServerReply, ServerResponseError

ModelT = TypeVar("ModelT", bound=BaseModel)
FAILURE_HEADER = "x-nemo-gym-failure"


async def raise_for_status(response: Any) -> None:
    """Raise a ClientResponseError with the body in `response_content`: the status is no good one."""
    body = await _body(response) or b""
    try:
        response.raise_for_status()
    except aiohttp.ClientResponseError as error:
        if _is_stand_in(response):
            error.response_content = body  # type: ignore[attr-defined]
            raise
        failure = response.headers.get(FAILURE_HEADER, "")
        raise ServerResponseError(*_request_line(response), error.status, error.message, body, failure) from error
    reason = str(getattr(response, "reason", None) or "")
    raise ServerResponseError(*_request_line(response), response.status, reason, body)


async def parsed_json(response: Any) -> Any:
    """The JSON that `response` holds."""
    body = await _body(response)
    if body is None:
        return await response.json()
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        content_type = str(getattr(response, "content_type", ""))
        status = getattr(response, "status", 0)
        raise InvalidServerReply(*_request_line(response), status, content_type, body, str(error)) from error


async def parsed_model(response: Any, kind: type[ModelT]) -> ModelT:
    """What `response` holds as a `kind`; ValueError if it is not JSON or not of that kind."""
    handed = response.as_kind(kind) if isinstance(response, HandedResponse) else None
    return handed if handed is not None else kind.model_validate(orjson.loads(await response.read()))


def unmade_cookies(response: Any, known: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What `response` and `known` say to the server that gave `response`; None if cookies have to be made to know."""
    new = response.unmade_cookies if isinstance(response, HandedResponse) else None
    return new if new is not None and (known is None or new.succeeds(known)) else None


def _is_stand_in(response: Any) -> bool:
    return not isinstance(response, aiohttp.ClientResponse | LocalResponse) or hasattr(response, "_mock_name")


async def _body(response: Any) -> bytes | None:
    """The body; None if a stand-in has none to read."""
    if not _is_stand_in(response):
        body: bytes = await response.read()
        return body
    for holder in (response, getattr(response, "content", None)):
        read = getattr(holder, "read", None)
        found = read() if read is not None else None
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, str):
            return found.encode()
        if isinstance(found, bytes | bytearray):
            return bytes(found)
    return None


def _request_line(response: Any) -> tuple[str, str]:
    return str(getattr(response, "method", "")), str(getattr(response, "url", ""))
