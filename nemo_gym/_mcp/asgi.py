# SPDX-License-Identifier: Apache-2.0
"""Whole requests and whole replies in ASGI, for code that looks at a body before or after a handler does."""

import json
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym._util.json_depth import MAX_DEPTH, is_too_deep


@dataclass(frozen=True)
class Reply:
    """A reply that was not sent yet."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(parts)


def replaying(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives `body` first; what comes after it is the client's own."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def set_body_length(scope: Scope, body: bytes) -> None:
    """Make the headers of a request fit `body`, in place: copies of a scope would part from its session."""
    kept = [(name, value) for name, value in scope["headers"] if name not in (b"content-length", b"transfer-encoding")]
    scope["headers"] = [*kept, (b"content-length", b"%d" % len(body))]


async def held_reply(app: ASGIApp, scope: Scope, receive: Receive) -> Reply:
    """What `app` answers, without sending it."""
    status, headers, parts = 500, list[tuple[bytes, bytes]](), list[bytes]()

    async def hold(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, hold)
    return Reply(status, tuple(headers), b"".join(parts))


async def send_reply(reply: Reply, send: Send) -> None:
    """Send `reply`, with a content-length that fits its body."""
    headers = [(name, value) for name, value in reply.headers if name != b"content-length"]
    headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def json_reply(status: int, content: Any, *headers: tuple[bytes, bytes]) -> Reply:
    """`content` as JSON."""
    return Reply(status, ((b"content-type", b"application/json"), *headers), dumped_json(content))


def parsed_json(raw: bytes) -> Any:
    """The value of `raw`. NaN and Infinity are taken, as handlers take them; ValueError for what is not JSON."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return json.loads(raw)
        except RecursionError as error:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from error
    if is_too_deep(raw, value):
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    return value


def dumped_json(value: Any) -> bytes:
    """`value` as JSON, integers of any size included."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()
