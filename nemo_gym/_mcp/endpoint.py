# SPDX-License-Identifier: Apache-2.0
"""MCP's streamable HTTP transport as an ASGI app, in its stateless form: every POST carries its session's token.

Replies are plain JSON. There is no stream from the server, so GET is refused, and nothing to end on DELETE.
"""

from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from nemo_gym._mcp.asgi import Reply, json_reply, parsed_json, read_body, send_reply
from nemo_gym._mcp.protocol import (
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSIONS,
    SESSION_REFUSED,
    UNSUPPORTED_PROTOCOL_VERSION,
    RpcError,
    ToolSession,
    answer,
    error_reply,
)
from nemo_gym._mcp.token import Grant, GrantSigner
from nemo_gym._mcp.types import SESSION_TOKEN_HEADER

_ALLOW = (b"allow", b"POST, DELETE")
_CHALLENGE = (b"www-authenticate", f'NeMoGymSession header="{SESSION_TOKEN_HEADER}"'.encode())


class McpEndpoint:
    """Serves the tools that `open_session` gives for the grant of a request's token."""

    def __init__(self, signer: GrantSigner, open_session: Callable[[Grant], ToolSession]) -> None:
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
        grant = self._grant_of(headers.get(SESSION_TOKEN_HEADER))
        if isinstance(grant, RpcError):
            return json_reply(401, error_reply(None, grant), _CHALLENGE)
        try:
            content = parsed_json(await read_body(receive))
        except ValueError as error:
            return json_reply(400, error_reply(None, RpcError(PARSE_ERROR, f"the body is not JSON: {error}")))
        if problem := _version_problem(headers.get("mcp-protocol-version"), content):
            return json_reply(400, error_reply(_id_of(content), problem))
        return await _answered(content, self._open_session(grant))

    def _grant_of(self, token: str | None) -> Grant | RpcError:
        hint = 'send the headers that the reply of POST /seed_session holds under "mcp"'
        if not token:
            return RpcError(
                SESSION_REFUSED, f"no session token: the header {SESSION_TOKEN_HEADER} is missing. hint: {hint}"
            )
        grant = self._signer.grant(token)
        if grant is None:
            return RpcError(
                SESSION_REFUSED,
                f"the session token in {SESSION_TOKEN_HEADER} is not one of this server's. hint: {hint}",
            )
        return grant


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
