# SPDX-License-Identifier: Apache-2.0
"""MCP's streamable HTTP transport as an ASGI app, in its stateless form: every tool call carries its session's token.

What belongs to no session (the handshake, the list of tools) is answered to anyone. Replies are plain JSON. There is no
stream from the server, so GET is refused, and nothing to end on DELETE.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from nemo_gym._inprocess.route import require_json
from nemo_gym._mcp.asgi import Reply, json_reply, parsed_json, read_body, send_reply
from nemo_gym._mcp.protocol import (
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSIONS,
    UNSUPPORTED_PROTOCOL_VERSION,
    RpcError,
    ToolResult,
    ToolSession,
    answer,
    error_reply,
)
from nemo_gym._mcp.token import Grant, GrantSigner
from nemo_gym._mcp.types import SESSION_TOKEN_HEADER, MCPTool

_ALLOW = (b"allow", b"POST, DELETE")


class McpEndpoint:
    """Serves what `open_session` gives for the grant of a request's token; for None, its tools cannot be run."""

    def __init__(self, signer: GrantSigner, open_session: Callable[[Grant | None], ToolSession]) -> None:
        self._signer, self._open_session = signer, open_session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_reply(await self._reply(scope, receive), send)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        if scope["method"] == "DELETE":
            return Reply(200, (), b"")
        if scope["method"] != "POST":
            refusal = RpcError(INVALID_REQUEST, "this server sends no events of its own: POST each message")
            return json_reply(405, error_reply(None, refusal), _ALLOW)
        headers = Headers(scope=scope)
        try:
            require_json(scope)
        except HTTPException as error:
            return json_reply(error.status_code, error_reply(None, RpcError(INVALID_REQUEST, str(error.detail))))
        try:
            content = parsed_json(await read_body(receive))
        except ValueError as error:
            return json_reply(400, error_reply(None, RpcError(PARSE_ERROR, f"the body is not JSON: {error}")))
        if problem := _version_problem(headers.get("mcp-protocol-version"), content):
            return json_reply(400, error_reply(_id_of(content), problem))
        token = headers.get(SESSION_TOKEN_HEADER)
        grant = self._signer.grant(token) if token else None
        session = self._open_session(grant)
        return await _answered(content, session if grant else replace(session, run=_refuse_call))


async def _refuse_call(tool: MCPTool, arguments: Mapping[str, Any]) -> ToolResult:
    return ToolResult(
        f"tool {tool.name!r} was not run, because the call belongs to no session: the header {SESSION_TOKEN_HEADER} is "
        "missing, or its token is not one of this server's.\n"
        'hint: send the headers that the reply of POST /seed_session holds under "mcp"',
        is_error=True,
    )


async def _answered(content: Any, session: ToolSession) -> Reply:
    if isinstance(content, list) and content:
        replies = [reply for message in content if (reply := await answer(message, session)) is not None]
        return json_reply(200, replies) if replies else Reply(202, (), b"")
    reply = await answer(content, session)
    if reply is None:
        return Reply(202, (), b"")
    malformed = "error" in reply and reply["id"] is None
    return json_reply(400 if malformed else 200, reply)


def _version_problem(version: str | None, content: Any) -> RpcError | None:
    """Why a request cannot be served in the protocol version of its header. `initialize` is what agrees on one."""
    if version is None or version in PROTOCOL_VERSIONS or _method_of(content) == "initialize":
        return None
    return RpcError(
        UNSUPPORTED_PROTOCOL_VERSION,
        f"protocol version {version!r} is not supported; begin with `initialize`",
        {"supported": list(PROTOCOL_VERSIONS), "requested": version},
    )


def _method_of(content: Any) -> Any:
    return content.get("method") if isinstance(content, dict) else None


def _id_of(content: Any) -> Any:
    return content.get("id") if isinstance(content, dict) else None
