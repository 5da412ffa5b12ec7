# SPDX-License-Identifier: Apache-2.0
"""Run a tool: a request to the same app, within the session of the caller, so that it is the REST call in all but name.

Middleware, validation and errors are those of the route. No socket is involved.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym._mcp.asgi import dumped_json
from nemo_gym._mcp.protocol import ToolResult
from nemo_gym._mcp.types import MCPTool
from nemo_gym._serving.session import SessionCookie as SessionCookie
from nemo_gym._transport import local
from nemo_gym._transport.errors import ServerDeadlineExceeded
from nemo_gym._util.keys import SESSION_ID_KEY as SESSION_ID_KEY
from nemo_gym._util.known_secrets import describe_error

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToolRunner:
    """Runs the tools of `app`."""

    app: Any
    server: tuple[str, int]
    cookie: SessionCookie
    timeout_s: float

    async def run(self, session_id: str, tool: MCPTool, arguments: Mapping[str, Any]) -> ToolResult:
        """What the route of `tool` answers in session `session_id`; a status other than 2xx is an error."""
        try:
            response = await local.call(
                self.app,
                "POST",
                f"http://{self.server[0]}:{self.server[1]}{tool.path}",
                tool.path,
                server=self.server,
                body=dumped_json(arguments),
                headers={"content-type": "application/json"},
                cookies={self.cookie.name: self.cookie.sign(dumped_json({SESSION_ID_KEY: session_id}))},
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
        return ToolResult(text or f"HTTP {response.status} {response.reason}", is_error=True)
