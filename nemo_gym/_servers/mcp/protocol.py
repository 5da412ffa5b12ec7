# SPDX-License-Identifier: Apache-2.0
"""Tools as MCP clients see them, and the messages that they need, as JSON-RPC: one decoded message in, one reply out.

A tool that fails or is not there gives a result with `isError`, for the model to read; a message that cannot be served
gives a JSON-RPC error, for the client.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import BaseModel, Field

from nemo_gym._util.json_depth import MAX_DEPTH, is_too_deep
from nemo_gym._util.json_values import load_json

SESSION_TOKEN_HEADER = "X-NeMo-Gym-Session-Token"
METADATA_KEY = "mcp"
RESERVED_TOOL_NAMES = frozenset({"verify", "seed_session", "aggregate_metrics", "mcp"})
URL_PATH = "/mcp"
ANY_ARGUMENTS: Mapping[str, Any] = {"type": "object", "additionalProperties": True}

PROTOCOL_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
UNSUPPORTED_PROTOCOL_VERSION = -32022


class MCPServerMetadata(BaseModel):
    """How an agent reaches this server's tools over MCP within its session."""

    server_name: str
    url_path: str = URL_PATH
    transport: str = "http"
    headers: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class MCPTool:
    """A tool as MCP clients see it, and the route of the same app that runs it."""

    name: str
    path: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: ANY_ARGUMENTS)


@dataclass(frozen=True)
class MCPCatchall:
    """A route `/{anything}` that runs tools by name. What those tools are, only its author knows."""

    path: str
    description: str = ""

    def tool(self, name: str, description: str = "", input_schema: Mapping[str, Any] | None = None) -> MCPTool:
        """Return the tool that this route runs when it is called as `/name`."""
        return MCPTool(name, f"/{name}", description, ANY_ARGUMENTS if input_schema is None else input_schema)


@dataclass(frozen=True)
class ToolResult:
    """What a tool answered, as the text that the model reads."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class ToolSession:
    """One caller's view of a server: its tools, and how to run one of them."""

    server_name: str
    server_version: str
    tools: Sequence[MCPTool]
    run: Callable[[MCPTool, Mapping[str, Any]], Awaitable[ToolResult]]


class RpcError(Exception):
    """A message that cannot be served."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data


async def answer_message(message: Any, session: ToolSession) -> dict[str, Any] | None:
    """Return the reply to one message; None for a notification or a response, which get none."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return build_error(None, RpcError(INVALID_REQUEST, 'not a JSON-RPC 2.0 message: "jsonrpc" must be "2.0"'))
    if "method" not in message and ("result" in message or "error" in message):
        return None
    if "id" not in message:
        return None
    request_id = message["id"]
    if not isinstance(request_id, str | int) or isinstance(request_id, bool):
        return build_error(
            None, RpcError(INVALID_REQUEST, f"a request id is a string or an integer, not {request_id!r}")
        )
    try:
        result = await _serve(message, session)
    except RpcError as error:
        return build_error(request_id, error)
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def build_error(request_id: str | int | None, error: RpcError) -> dict[str, Any]:
    """Return `error` as a JSON-RPC message."""
    content: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        content["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": content}


async def _serve(message: Mapping[str, Any], session: ToolSession) -> dict[str, Any]:
    method = message.get("method")
    params = message.get("params")
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, f"a request names its method with a string, not {method!r}")
    if not isinstance(params, dict | None):
        raise RpcError(INVALID_PARAMS, f"the params of {method!r} must be an object")
    match method:
        case "initialize":
            asked = (params or {}).get("protocolVersion")
            return {
                "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[-1],
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": session.server_name, "version": session.server_version},
            }
        case "ping":
            return {}
        case "tools/list":
            return {
                "tools": [
                    {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.input_schema)}
                    for tool in session.tools
                ]
            }
        case "tools/call":
            return await _call_tool(params or {}, session)
    raise RpcError(METHOD_NOT_FOUND, f"unknown method {method!r}: this server offers tools only")


async def _call_tool(params: Mapping[str, Any], session: ToolSession) -> dict[str, Any]:
    name = params.get("name")
    arguments = params.get("arguments")
    if not isinstance(arguments, dict | None):
        raise RpcError(INVALID_PARAMS, f"the arguments of tool {name!r} must be an object")
    tool = next((tool for tool in session.tools if tool.name == name), None)
    if tool is None:
        offered = ", ".join(repr(tool.name) for tool in session.tools) or "none"
        outcome = ToolResult(f"Unknown tool {name!r}; tools of this session: {offered}", is_error=True)
    else:
        outcome = await session.run(tool, arguments or {})
    return {"content": [{"type": "text", "text": outcome.text}], "isError": outcome.is_error}


def parse_json(raw: bytes) -> Any:
    """Return the value of `raw`. NaN and Infinity are taken, as handlers take them; ValueError for what is not JSON."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return load_json(raw)
        except RecursionError as error:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from error
    if is_too_deep(raw, value):
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    return value


def dump_json(value: Any) -> bytes:
    """Return `value` as JSON, integers of any size included."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()
