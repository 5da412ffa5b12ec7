# SPDX-License-Identifier: Apache-2.0
"""What a call over MCP may do and how it is done: the signed grant of a session, and a tool that runs within it.

The token says which session a call belongs to and which tools it may use. It does not expire: a session lives as long
as its server keeps its state. A tool runs as a request to the same app, so that it is the REST call in all but name:
middleware, validation and errors are those of the route. No socket is involved.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, URLSafeSerializer

from nemo_gym._servers.direct_calls.call import call_asgi
from nemo_gym._servers.http.session_cookie import SessionCookie
from nemo_gym._servers.mcp.protocol import MCPTool, ToolResult, dump_json
from nemo_gym._transport.call_errors import ServerDeadlineExceeded
from nemo_gym._util.known_secrets import describe_error
from nemo_gym._util.row_keys import SESSION_ID_KEY

_SALT = "nemo-gym-mcp-session"


@dataclass(frozen=True)
class Grant:
    """What the holder of a token may do."""

    session_id: str
    tools: frozenset[str] | None
    """Names of the tools the session may use; None: all of them."""

    def allows(self, tool: str) -> bool:
        """Return whether the session may use `tool`."""
        return self.tools is None or tool in self.tools


class GrantSigner:
    """Turns grants into tokens and back."""

    def __init__(self, secret: str) -> None:
        self._serializer = URLSafeSerializer(secret, salt=_SALT)

    def sign(self, grant: Grant) -> str:
        """Return `grant` as a token that nobody without the secret can make."""
        tools = None if grant.tools is None else sorted(grant.tools)
        return str(self._serializer.dumps({"sid": grant.session_id, "tools": tools}))

    def read(self, token: str) -> Grant | None:
        """Return what `token` allows; None if it was not made here."""
        try:
            content = self._serializer.loads(token)
        except BadData:
            return None
        tools = content["tools"]
        return Grant(content["sid"], None if tools is None else frozenset(tools))


LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToolRunner:
    """Runs the tools of `app`."""

    app: Any
    server: tuple[str, int]
    cookie: SessionCookie
    timeout_s: float

    async def run(self, session_id: str, tool: MCPTool, arguments: Mapping[str, Any]) -> ToolResult:
        """Return what the route of `tool` answers in session `session_id`; a status other than 2xx is an error."""
        try:
            response = await call_asgi(
                self.app,
                "POST",
                f"http://{self.server[0]}:{self.server[1]}{tool.path}",
                tool.path,
                address=self.server,
                body=dump_json(arguments),
                headers={"content-type": "application/json"},
                cookies={self.cookie.name: self.cookie.sign(dump_json({SESSION_ID_KEY: session_id}))},
                timeout_s=self.timeout_s,
            )
        except ServerDeadlineExceeded as error:
            LOG.warning("tool %r: %s", tool.name, error)
            return ToolResult(str(error), is_error=True)
        except Exception as error:
            LOG.exception("tool %r failed", tool.name)
            return ToolResult(describe_error(error), is_error=True)
        text = await response.text(errors="replace")
        if 200 <= response.status < 300:
            return ToolResult(text)
        return ToolResult(f"HTTP {response.status} {response.reason}: {text}".removesuffix(": "), is_error=True)
