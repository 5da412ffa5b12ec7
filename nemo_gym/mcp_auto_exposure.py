# SPDX-License-Identifier: Apache-2.0
"""Offer the tools of a resources server over MCP at `/mcp`, without any code in the server.

A session begins with `/seed_session`, whose reply says how to reach the tools; a tool called over MCP sees the same
session as one called over REST. Without that session's token, tools can be listed but not called. The protocol is in
`nemo_gym._servers.mcp`.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.routing import Route

from nemo_gym._servers.http.session_cookie import session_cookie
from nemo_gym._servers.mcp.harvest import check_tools, harvest_tools, read_tool
from nemo_gym._servers.mcp.mcp_endpoint import McpEndpoint, SessionEndpoints
from nemo_gym._servers.mcp.protocol import (
    SESSION_TOKEN_HEADER,
    URL_PATH,
    MCPCatchall as MCPCatchall,
    MCPServerMetadata,
    MCPTool as MCPTool,
    ToolResult,
    ToolSession,
)
from nemo_gym._servers.mcp.session import Grant, GrantSigner, ToolRunner
from nemo_gym._servers.process_environment import derive_run_secret, own_secret
from nemo_gym._transport.http_calls import SessionSettings
from nemo_gym._version import __version__
from nemo_gym.errors import ConfigError

LOG = logging.getLogger(__name__)

TOKEN_HEADER = SESSION_TOKEN_HEADER


class _Config(Protocol):
    name: str
    host: str
    port: int
    expose_tools_over_mcp: bool


class _ResourcesServer(Protocol):
    """The part of `SimpleResourcesServer` needed here; importing the class itself would be circular."""

    @property
    def config(self) -> _Config: ...
    def get_session_middleware_key(self) -> str: ...
    def setup_session_middleware(self, app: FastAPI) -> None: ...
    def normalize_tool_name(self, name: str) -> str: ...
    def mcp_tools(self, harvested: list[MCPTool], catchall: MCPCatchall | None = None) -> list[MCPTool]: ...
    def mcp_allowed_tools_for_session(self, seed_body: Mapping[str, Any]) -> list[str] | None: ...


def maybe_auto_expose(server: Any, app: FastAPI) -> dict[str, MCPTool] | None:
    """Call `install_auto_exposure` if the config of `server` has `expose_tools_over_mcp`; else return None."""
    if server.config.expose_tools_over_mcp:
        return install_auto_exposure(server, app)
    return None


def install_auto_exposure(server: Any, app: FastAPI) -> dict[str, MCPTool]:
    """Add `/mcp` to the finished routes of `app`, and return the tools it offers by name.

    Raise ConfigError for routes that cannot be offered as tools. A second call changes nothing.
    """
    installed: dict[str, MCPTool] | None = getattr(app.state, "nemo_gym_mcp_tools", None)
    if installed is not None:
        return dict(installed)
    if app.middleware_stack is not None:
        raise RuntimeError("tools can be offered over MCP only before the app has served its first request")
    tools = _list_tools(server, app)
    app.state.nemo_gym_mcp_tools = {tool.name: tool for tool in tools}
    server.setup_session_middleware(app)
    signer = _make_signer(server)
    _add_endpoint(server, app, signer, tools)
    _add_session_endpoints(server, app, signer)
    return dict(app.state.nemo_gym_mcp_tools)


def bind_route(route: Any) -> MCPTool:
    """Return the tool that calls `route`; raise ConfigError for a route that cannot be a tool."""
    return read_tool(route)


def session_by_header(server: Any) -> dict[bytes, Callable[[bytes], str | None]]:
    """Return the header in which MCP requests to `server` name their session, and how to read it."""
    signer = _make_signer(server)

    def session_id(token: bytes) -> str | None:
        grant = signer.read(token.decode("latin-1"))
        return grant.session_id if grant else None

    return {SESSION_TOKEN_HEADER.lower().encode(): session_id}


def _make_signer(server: _ResourcesServer) -> GrantSigner:
    """Return the signer of grants. It needs a secret of the run: the server's name is not secret."""
    name = f"mcp {server.get_session_middleware_key()}"
    return GrantSigner(derive_run_secret(name) or f"{name} {own_secret()}")


def _list_tools(server: _ResourcesServer, app: FastAPI) -> list[MCPTool]:
    name = server.config.name
    try:
        found = harvest_tools(app)
        tools = server.mcp_tools(found.tools, found.catchall)
        check_tools(tools)
    except ConfigError as error:
        raise ConfigError(f"server {name!r}: {error}") from error
    if not tools:
        LOG.warning("server %r has `expose_tools_over_mcp`, but no tools to offer", name)
    return tools


def _add_endpoint(server: _ResourcesServer, app: FastAPI, signer: GrantSigner, tools: list[MCPTool]) -> None:
    config = server.config
    runner = ToolRunner(
        app=app,
        server=(config.host, config.port),
        cookie=session_cookie(app, server.get_session_middleware_key()),
        timeout_s=SessionSettings.total_timeout_s,
    )

    def open_session(grant: Grant | None) -> ToolSession:
        async def run(tool: MCPTool, arguments: Mapping[str, Any]) -> ToolResult:
            if grant is None:
                raise PermissionError(f"tool {tool.name!r} was called without a session")
            return await runner.run(grant.session_id, tool, arguments)

        return ToolSession(
            server_name=config.name,
            server_version=__version__,
            tools=[tool for tool in tools if grant is None or grant.allows(tool.name)],
            run=run,
        )

    endpoint = McpEndpoint(signer, open_session)
    # Ahead of everything else: a server's own `/{path}` would take these requests.
    app.router.routes[:0] = [Route(path, endpoint, include_in_schema=False) for path in (URL_PATH, f"{URL_PATH}/")]


def _add_session_endpoints(server: _ResourcesServer, app: FastAPI, signer: GrantSigner) -> None:
    def metadata(session_id: str, seed_body: Mapping[str, Any]) -> dict[str, Any]:
        allowed = server.mcp_allowed_tools_for_session(seed_body)
        token = signer.sign(Grant(session_id, None if allowed is None else frozenset(allowed)))
        return MCPServerMetadata(server_name=server.config.name, headers={SESSION_TOKEN_HEADER: token}).model_dump()

    # The last in the list runs closest to the routes, where the session is known.
    app.user_middleware.append(Middleware(SessionEndpoints, metadata=metadata, tool_name=server.normalize_tool_name))
