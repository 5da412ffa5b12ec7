# SPDX-License-Identifier: Apache-2.0
"""What MCP changes at the REST endpoints of a session: `/seed_session` says how to reach the tools over MCP, and
`/verify` sees their plain names. MCP clients call a tool `mcp__<server>__<tool>`; verifiers are written for `<tool>`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym._mcp.asgi import (
    Reply,
    dumped_json,
    held_reply,
    parsed_json,
    read_body,
    replaying,
    send_reply,
    set_body_length,
)
from nemo_gym._mcp.calls import SESSION_ID_KEY
from nemo_gym._mcp.types import METADATA_KEY


class SessionEndpoints:
    """Innermost middleware: it needs the session in place, and the path as the routes know it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metadata: Callable[[str, Mapping[str, Any]], dict[str, Any]],
        tool_name: Callable[[str], str],
    ) -> None:
        self._app, self._metadata, self._tool_name = app, metadata, tool_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            if scope["path"] == "/seed_session":
                return await self._seed_session(scope, receive, send)
            if scope["path"] == "/verify":
                return await self._verify(scope, receive, send)
        return await self._app(scope, receive, send)

    async def _seed_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        reply = await held_reply(self._app, scope, replaying(body, receive))
        if 200 <= reply.status < 300:
            reply = self._with_metadata(reply, scope["session"][SESSION_ID_KEY], body)
        await send_reply(reply, send)

    def _with_metadata(self, reply: Reply, session_id: str, body: bytes) -> Reply:
        answered = parsed_json(reply.body or b"null")
        if not isinstance(answered, dict | None):
            raise TypeError(f"/seed_session must answer with an object for MCP's session token, not {answered!r}")
        asked = parsed_json(body or b"null")
        metadata = self._metadata(session_id, asked if isinstance(asked, dict) else {})
        return Reply(reply.status, reply.headers, dumped_json({**(answered or {}), METADATA_KEY: metadata}))

    async def _verify(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = with_plain_tool_names(await read_body(receive), self._tool_name)
        set_body_length(scope, body)
        await self._app(scope, replaying(body, receive), send)


def with_plain_tool_names(body: bytes, tool_name: Callable[[str], str]) -> bytes:
    """A verify request whose function calls are named as `tool_name` says; anything else about it is left alone."""
    if b"mcp__" not in body:
        return body
    try:
        content = parsed_json(body)
    except ValueError:
        return body  # the route says what is wrong with it
    changed = False
    for call in _function_calls(content):
        plain = tool_name(call["name"])
        changed = changed or plain != call["name"]
        call["name"] = plain
    return dumped_json(content) if changed else body


def _function_calls(content: Any) -> list[dict[str, Any]]:
    response = content.get("response") if isinstance(content, dict) else None
    output = response.get("output") if isinstance(response, dict) else None
    return [
        item
        for item in (output if isinstance(output, list) else ())
        if isinstance(item, dict) and item.get("type") == "function_call" and isinstance(item.get("name"), str)
    ]
