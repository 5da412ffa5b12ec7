# SPDX-License-Identifier: Apache-2.0
"""Replies of servers in this process, with aiohttp's interface; and how to read a reply of either kind.

A reply that is a test double is read as far as it goes, and its own error is raised.
"""

from collections.abc import Iterator, Mapping
from http.cookies import SimpleCookie
from typing import Any, Protocol, TypeVar, cast

import aiohttp
import orjson
from pydantic import BaseModel, ValidationError

from nemo_gym._servers.direct_calls.objects import OBJECT_TYPES, copy_for_receiver, list_object_fields
from nemo_gym._transport.call_errors import InvalidServerReply, ServerResponseError
from nemo_gym._transport.failures import HEADER
from nemo_gym._transport.stand_ins import is_stand_in, read_stand_in
from nemo_gym._transport.whole_response import WholeResponse, add_cookie
from nemo_gym._wire.schema.replies import NeMoGymResponse

ModelT = TypeVar("ModelT", bound=BaseModel)


class Session(Protocol):
    """The session in which a handler works."""

    data: dict[str, Any]

    @property
    def owner(self) -> object:
        """What opened it; one per server."""

    def set_cookie(self) -> str:
        """Return its `Set-Cookie` header."""

    def reopen(self) -> "Session":
        """Open it for the next request, with only what a cookie would carry."""


class InProcessResponse(WholeResponse):
    """A reply of a server in this process."""


class ObjectResponse(InProcessResponse):
    """A successful reply that becomes bytes only for a caller who reads bytes."""

    def __init__(
        self, method: str, url: str, content: bytes | NeMoGymResponse | dict[str, Any], session: Session | None
    ) -> None:
        """`content` is the reply itself, or what `dump_around_objects` made of it."""
        # Sets what the base class sets, all at once: every call makes one.
        self.method = method
        self.status = 200
        self._url = url
        self._raw_headers = []
        self._body = content if isinstance(content, bytes) else b""
        self._value = content
        self._session = session

    @property
    def lazy_cookies(self) -> "LazyCookies | None":
        """The cookies, to be sent back with another call; None if there is no session."""
        if self._session is None:
            return None
        return LazyCookies(self, self._session)

    def convert(self, kind: type[ModelT]) -> ModelT | None:
        """Return the reply as a `kind`; None if that takes its bytes."""
        value = self._value
        if type(value) is NeMoGymResponse and kind is NeMoGymResponse:
            if all(isinstance(item, BaseModel) for item in value.output):
                return cast(ModelT, copy_for_receiver(value))  # the server may keep its own, and return it to others
            fields = {**value.__dict__, **(value.__pydantic_extra__ or {})}
        elif type(value) is dict and (names := list_object_fields(kind)):
            fields = dict(value)
            for name, part in value.items():
                if name not in names and type(part) in OBJECT_TYPES:
                    fields[name] = part.model_dump(mode="json", by_alias=True, warnings=False)
        else:
            return None
        try:
            return kind.model_validate(fields)
        except ValidationError:
            return None

    def encode_body(self) -> bytes:
        if not self._body:
            value = self._value
            if isinstance(value, NeMoGymResponse):
                self._body = value.model_dump_json().encode()
            else:
                self._body = orjson.dumps(value, default=_encode_object)
        return self._body

    def _encode_headers(self) -> list[tuple[bytes, bytes]]:
        if not self._raw_headers:
            size = b"content-length", b"%d" % len(self.encode_body())
            self._raw_headers = [size, (b"content-type", b"application/json")]
            if self._session:
                self._raw_headers.append((b"set-cookie", self._session.set_cookie().encode("latin-1")))
        return self._raw_headers

    @property
    def cookies(self) -> SimpleCookie:
        if self._cookies is None:
            self._cookies = SimpleCookie()
            if self._session is not None:
                add_cookie(self._cookies, self._session.set_cookie())
        return self._cookies


def _encode_object(value: Any) -> Any:
    return orjson.Fragment(value.model_dump_json(by_alias=True, warnings=False))


class LazyCookies(Mapping[str, Any]):
    """The cookies of a reply, signed on demand: whoever sends them back hands over the session itself."""

    __slots__ = ("_reply", "session")

    def __init__(self, reply: ObjectResponse, session: Session) -> None:
        self._reply = reply
        self.session = session

    def __getitem__(self, name: str) -> Any:
        return self._reply.cookies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._reply.cookies)

    def __len__(self) -> int:
        return len(self._reply.cookies)

    def __bool__(self) -> bool:
        return True  # every reply has the cookie of its session


# --- reading a reply of either kind -----------------------------------------------------------------------------------


async def raise_error_status(response: Any, content: bytes | None = None) -> None:
    """Raise a ClientResponseError for an error status, with the body in `response_content`.

    `content` is the body, if it has been read already.
    """
    body = content if content is not None else await _read_body(response) or b""
    request_line = _request_line(response)
    try:
        response.raise_for_status()
    except aiohttp.ClientResponseError as error:
        if is_stand_in(response):
            error.response_content = body  # type: ignore[attr-defined]
            raise
        failure = response.headers.get(HEADER, "")
        retry_after = response.headers.get("retry-after", "")
        raise ServerResponseError(*request_line, error.status, error.message, body, failure, retry_after) from error
    reason = str(getattr(response, "reason", None) or "")
    raise ServerResponseError(*request_line, response.status, reason, body)


async def read_json(response: Any) -> Any:
    """Return the JSON in `response`."""
    body = response.encode_body() if isinstance(response, WholeResponse) else await _read_body(response)
    if body is None:
        return await response.json()
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        content_type = str(getattr(response, "content_type", ""))
        status = getattr(response, "status", 0)
        raise InvalidServerReply(*_request_line(response), status, content_type, body, str(error)) from error


async def read_model(response: Any, kind: type[ModelT]) -> ModelT:
    """Return the content of `response` as a `kind`; raise ValueError if it is not JSON or not of that kind."""
    return kind.model_validate(orjson.loads(await response.read()))


def lazy_cookies(response: Any, known: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the cookies of `response` if they replace all that are `known` and need not be signed; else None."""
    new = response.lazy_cookies if isinstance(response, ObjectResponse) else None
    if new is None or not known:
        return new
    if isinstance(known, LazyCookies) and known.session.owner is new.session.owner:
        return new
    return None


async def _read_body(response: Any) -> bytes | None:
    """Return the body; None if a test double has none to read."""
    if is_stand_in(response):
        return await read_stand_in(response)
    body: bytes = await response.read()
    return body


def _request_line(response: Any) -> tuple[str, str]:
    return str(getattr(response, "method", "")), str(getattr(response, "url", ""))
