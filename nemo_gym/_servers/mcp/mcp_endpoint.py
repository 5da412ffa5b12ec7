# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of MCP: the endpoint `/mcp`, and what changes at the REST endpoints of a session.

`/mcp` is MCP's streamable HTTP transport in its stateless form: every tool call carries its session's token. What
belongs to no session (the handshake, the list of tools) is answered to anyone. Replies are plain JSON. There is no
stream from the server, so GET is refused, and nothing to end on DELETE.

`/seed_session` says how to reach the tools over MCP, and `/verify` sees their plain names: MCP clients call a tool
`mcp__<server>__<tool>`; verifiers are written for `<tool>`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym._servers.direct_calls.json_bodies import require_json
from nemo_gym._servers.mcp.protocol import (
    INVALID_REQUEST,
    METADATA_KEY,
    PARSE_ERROR,
    PROTOCOL_VERSIONS,
    SESSION_TOKEN_HEADER,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPTool,
    RpcError,
    ToolResult,
    ToolSession,
    answer_message,
    build_error,
    dump_json,
    parse_json,
)
from nemo_gym._servers.mcp.session import Grant, GrantSigner
from nemo_gym._util.row_keys import SESSION_ID_KEY

_ALLOW = (b"allow", b"POST, DELETE")


@dataclass(frozen=True)
class HeldReply:
    """A reply that was not sent yet."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class McpEndpoint:
    """Serves what `open_session` gives for the grant of a request's token; for None, its tools cannot be run."""

    def __init__(self, signer: GrantSigner, open_session: Callable[[Grant | None], ToolSession]) -> None:
        self._signer = signer
        self._open_session = open_session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_reply(await self._answer(scope, receive), send)

    async def _answer(self, scope: Scope, receive: Receive) -> HeldReply:
        if scope["method"] == "DELETE":
            return HeldReply(200, (), b"")
        if scope["method"] != "POST":
            refusal = RpcError(INVALID_REQUEST, "this server sends no events of its own: POST each message")
            return build_json_reply(405, build_error(None, refusal), _ALLOW)
        headers = Headers(scope=scope)
        try:
            require_json(scope)
        except HTTPException as error:
            return build_json_reply(error.status_code, build_error(None, RpcError(INVALID_REQUEST, str(error.detail))))
        try:
            content = parse_json(await read_body(receive))
        except ValueError as error:
            return build_json_reply(400, build_error(None, RpcError(PARSE_ERROR, f"the body is not JSON: {error}")))
        asked = content if isinstance(content, dict) else {}
        if problem := _check_version(headers.get("mcp-protocol-version"), asked.get("method")):
            return build_json_reply(400, build_error(asked.get("id"), problem))
        token = headers.get(SESSION_TOKEN_HEADER)
        grant = self._signer.read(token) if token else None
        session = self._open_session(grant)
        return await _answer_all(content, session if grant else replace(session, run=_refuse_call))


async def _refuse_call(tool: MCPTool, arguments: Mapping[str, Any]) -> ToolResult:
    return ToolResult(
        f"tool {tool.name!r} was not run, because the call belongs to no session: the header {SESSION_TOKEN_HEADER} is "
        "missing, or its token is not one of this server's.\n"
        'hint: send the headers that the reply of POST /seed_session holds under "mcp"',
        is_error=True,
    )


async def _answer_all(content: Any, session: ToolSession) -> HeldReply:
    if isinstance(content, list) and content:
        replies = [reply for message in content if (reply := await answer_message(message, session)) is not None]
        if replies:
            return build_json_reply(200, replies)
        return HeldReply(202, (), b"")
    reply = await answer_message(content, session)
    if reply is None:
        return HeldReply(202, (), b"")
    malformed = "error" in reply and reply["id"] is None
    return build_json_reply(400 if malformed else 200, reply)


def _check_version(version: str | None, method: Any) -> RpcError | None:
    """Return why a request cannot be served in the protocol version of its header. `initialize` agrees on one."""
    if version is None or version in PROTOCOL_VERSIONS or method == "initialize":
        return None
    return RpcError(
        UNSUPPORTED_PROTOCOL_VERSION,
        f"protocol version {version!r} is not supported; begin with `initialize`",
        {"supported": list(PROTOCOL_VERSIONS), "requested": version},
    )


class SessionEndpoints:
    """Innermost middleware: it needs the session in place, and the path as the routes know it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metadata: Callable[[str, Mapping[str, Any]], dict[str, Any]],
        tool_name: Callable[[str], str],
    ) -> None:
        self._app = app
        self._metadata = metadata
        self._tool_name = tool_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            if scope["path"] == "/seed_session":
                return await self._handle_seed_session(scope, receive, send)
            if scope["path"] == "/verify":
                return await self._handle_verify(scope, receive, send)
        return await self._app(scope, receive, send)

    async def _handle_seed_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        reply = await hold_reply(self._app, scope, replay_body(body, receive))
        if 200 <= reply.status < 300:
            reply = self._add_metadata(reply, scope["session"][SESSION_ID_KEY], body)
        await send_reply(reply, send)

    def _add_metadata(self, reply: HeldReply, session_id: str, body: bytes) -> HeldReply:
        answered = parse_json(reply.body or b"null")
        if not isinstance(answered, dict | None):
            raise TypeError(f"/seed_session must answer with an object for MCP's session token, not {answered!r}")
        asked = parse_json(body or b"null")
        metadata = self._metadata(session_id, asked if isinstance(asked, dict) else {})
        return HeldReply(reply.status, reply.headers, dump_json({**(answered or {}), METADATA_KEY: metadata}))

    async def _handle_verify(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = await read_body(receive)
        body = rename_calls(asked, self._tool_name)
        # In place: copies of a scope would part from its session.
        lengths = (b"content-length", b"transfer-encoding")
        kept = [(name, value) for name, value in scope["headers"] if name not in lengths]
        scope["headers"] = [*kept, (b"content-length", b"%d" % len(body))]
        if body is asked:
            await self._app(scope, replay_body(body, receive), send)
            return
        reply = await hold_reply(self._app, scope, replay_body(body, receive))
        # The rollout is stored with the names that the model wrote.
        await send_reply(replace(reply, body=restore_names(reply.body, asked, self._tool_name)), send)


def rename_calls(body: bytes, tool_name: Callable[[str], str]) -> bytes:
    """Name the function calls of a verify request as `tool_name` says; anything else about it is left alone."""
    if b"mcp__" not in body:
        return body
    try:
        content = parse_json(body)
    except ValueError:
        return body  # the route says what is wrong with it
    changed = False
    for call in _list_function_calls(content):
        plain = tool_name(call["name"])
        changed = changed or plain != call["name"]
        call["name"] = plain
    return dump_json(content) if changed else body


def restore_names(reply: bytes, asked: bytes, tool_name: Callable[[str], str]) -> bytes:
    """Give the function calls of a verify reply the names that they had in its request, `asked`."""
    try:
        content = parse_json(reply)
    except ValueError:
        return reply
    named = _list_function_calls(parse_json(asked))
    written = {(call.get("call_id"), tool_name(call["name"])): call["name"] for call in named}
    calls = _list_function_calls(content)
    for call in calls:
        call["name"] = written.get((call.get("call_id"), call["name"]), call["name"])
    return dump_json(content) if calls else reply


def _list_function_calls(content: Any) -> list[dict[str, Any]]:
    response = content.get("response") if isinstance(content, dict) else None
    output = response.get("output") if isinstance(response, dict) else None
    return [
        item
        for item in (output if isinstance(output, list) else ())
        if isinstance(item, dict) and item.get("type") == "function_call" and isinstance(item.get("name"), str)
    ]


async def read_body(receive: Receive) -> bytes:
    """Read the whole body of a request."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(parts)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives `body` first; what comes after it is the client's own."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def hold_reply(app: ASGIApp, scope: Scope, receive: Receive) -> HeldReply:
    """Return what `app` answers, without sending it."""
    status = 500
    headers = list[tuple[bytes, bytes]]()
    parts = list[bytes]()

    async def hold(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, hold)
    return HeldReply(status, tuple(headers), b"".join(parts))


async def send_reply(reply: HeldReply, send: Send) -> None:
    """Send `reply`, with a content-length that fits its body."""
    headers = [(name, value) for name, value in reply.headers if name != b"content-length"]
    headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def build_json_reply(status: int, content: Any, *headers: tuple[bytes, bytes]) -> HeldReply:
    """Return a reply with `content` as JSON."""
    return HeldReply(status, ((b"content-type", b"application/json"), *headers), dump_json(content))
