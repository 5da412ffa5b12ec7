# SPDX-License-Identifier: Apache-2.0
"""What the handler of a direct call sees as its request, and what a model server returns: values, bytes on demand."""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from nemo_gym._servers.direct_calls.response import Session
from nemo_gym._transport import http_calls as http
from nemo_gym._wire.schema.replies import NeMoGymResponse
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming

OPEN_SESSION = "nemo_gym.session"
"""Scope key: the session, if it is already open."""
_ANY_SCOPE = {"type": "http"}


class _ObjectBody:
    """The body of a request that came as a value; it becomes bytes only when bytes are read."""

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

    def dump(self) -> bytes | NeMoGymResponse:
        """Return the value as an in-process reply holds it."""
        if type(self.value) is NeMoGymResponse:
            return self.value
        return self.value.model_dump_json().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.body = self.value.model_dump_json().encode()
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]
        await super().__call__(scope, receive, send)
