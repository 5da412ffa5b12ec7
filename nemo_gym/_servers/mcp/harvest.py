# SPDX-License-Identifier: Apache-2.0
"""Find the tools of an app: its POST routes, described by the OpenAPI document that FastAPI makes of them.

Routes with path or query parameters are not tools: a tool call has arguments and nothing else. A route that looks like
a tool but cannot be called as one is an error, so that no tool goes missing silently.
"""

import copy
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.errors import PydanticUserError

from nemo_gym._servers.mcp.protocol import ANY_ARGUMENTS, RESERVED_TOOL_NAMES, MCPCatchall, MCPTool
from nemo_gym._servers.mcp.schema import NotAnObject, build_object_schema
from nemo_gym.errors import ConfigError

LOG = logging.getLogger(__name__)

_CATCHALL = re.compile(r"/\{[^/{}]+\}")
_RESERVED_PATHS = frozenset(f"/{name}" for name in RESERVED_TOOL_NAMES - {"mcp"})


@dataclass(frozen=True)
class Harvest:
    """What the routes of an app offer."""

    tools: list[MCPTool]
    catchall: MCPCatchall | None


@dataclass(frozen=True)
class _Operation:
    """One POST endpoint as its OpenAPI document describes it."""

    path: str
    content: Mapping[str, Any]
    components: Mapping[str, Any]


class _NotExposable(Exception):
    """Why a route cannot be a tool."""


def harvest_tools(app: FastAPI) -> Harvest:
    """Return the tools that the routes of `app` stand for; raises ConfigError with every route that cannot be one."""
    tools = list[MCPTool]()
    problems = list[str]()
    for route in app.routes:
        try:
            tools.extend(_read_tools(route))
        except _NotExposable as problem:
            problems.append(str(problem))
    if problems:
        raise ConfigError(
            "some routes cannot be offered over MCP:\n"
            + "\n".join(f"- {problem}" for problem in problems)
            + "\nhint: let these handlers take one pydantic model as body, or set `expose_tools_over_mcp: false`"
        )
    for route in reversed(app.routes):
        if isinstance(route, APIRoute) and "POST" in (route.methods or ()) and _CATCHALL.fullmatch(route.path_format):
            return Harvest(tools, MCPCatchall(route.path, route.description))
    return Harvest(tools, None)


def read_tool(route: Any) -> MCPTool:
    """Return the tool that a single route stands for; raises ConfigError if it stands for none or for several."""
    try:
        tools = list(_read_tools(route))
    except _NotExposable as problem:
        raise ConfigError(
            f"a route cannot be offered over MCP: {problem}\nhint: let its handler take one pydantic model as body"
        ) from problem
    if len(tools) != 1:
        raise ConfigError(
            f"the route {getattr(route, 'path', route)!r} stands for {len(tools)} tools, not for one.\n"
            "hint: a tool is a POST route without parameters in its path or query, and not one of "
            f"{', '.join(sorted(_RESERVED_PATHS))}"
        )
    return tools[0]


def check_tools(tools: Sequence[MCPTool]) -> None:
    """Raise ConfigError for tools that clients could not tell apart or may not call."""
    paths: dict[str, str] = {}
    for tool in tools:
        if not isinstance(tool, MCPTool):
            raise ConfigError(
                f"`mcp_tools` returned {tool!r}, which is not a tool.\n"
                "hint: return items of `harvested`, or make one with `catchall.tool(name, description, input_schema)`"
            )
        if tool.name in RESERVED_TOOL_NAMES:
            raise ConfigError(
                f"POST {tool.path!r} cannot be offered over MCP: the tool name {tool.name!r} is reserved "
                f"(reserved: {', '.join(sorted(RESERVED_TOOL_NAMES))}).\nhint: rename the route"
            )
        if tool.name in paths:
            raise ConfigError(
                f"two routes cannot both be offered over MCP as tool {tool.name!r}: "
                f"POST {paths[tool.name]!r} and POST {tool.path!r}.\nhint: rename one of them"
            )
        paths[tool.name] = tool.path


def _read_tools(route: Any) -> Iterator[MCPTool]:
    if getattr(route, "path", None) in _RESERVED_PATHS:  # spares the long schemas of verify
        return
    for operation in _read_operations(route):
        is_reserved = operation.path in _RESERVED_PATHS or operation.path.startswith("/v1/")
        if not is_reserved and "{" not in operation.path and _has_arguments_only(operation):
            yield MCPTool(
                name=operation.path.strip("/").replace("/", "_"),
                path=operation.path,
                description=operation.content.get("description", ""),
                input_schema=_build_input_schema(operation),
            )


def _read_operations(route: Any) -> Iterator[_Operation]:
    """Yield the POST endpoints of `route`, which may be a router that was included."""
    if isinstance(route, APIRoute) and not route.include_in_schema:
        route = copy.copy(route)
        route.include_in_schema = True
    try:
        document = get_openapi(title="tools", version="0", routes=[route])
    except PydanticUserError as error:
        raise _NotExposable(f"POST {route.path!r}: its types have no JSON schema ({error})") from error
    components = document.get("components", {}).get("schemas", {})
    for path, methods in document["paths"].items():
        if "post" in methods:
            yield _Operation(path, methods["post"], components)


def _has_arguments_only(operation: _Operation) -> bool:
    parameters = operation.content.get("parameters", ())
    if any(parameter["in"] == "query" for parameter in parameters):
        LOG.warning("POST %s is not offered over MCP: it takes query parameters", operation.path)
        return False
    for parameter in parameters:
        if parameter.get("required"):
            raise _NotExposable(f"POST {operation.path!r}: it requires the {parameter['in']} {parameter['name']!r}")
    return True


def _build_input_schema(operation: _Operation) -> Mapping[str, Any]:
    body = operation.content.get("requestBody")
    if body is None:
        return ANY_ARGUMENTS  # the handler may read the body itself
    if "application/json" not in body["content"]:
        raise _NotExposable(f"POST {operation.path!r}: its body is {', '.join(body['content'])}, not JSON")
    try:
        return build_object_schema(body["content"]["application/json"]["schema"], operation.components)
    except NotAnObject as error:
        raise _NotExposable(f"POST {operation.path!r}: its body is not a JSON object but {error}") from error
