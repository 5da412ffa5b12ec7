# SPDX-License-Identifier: Apache-2.0
"""The names and types that a resources server and its MCP exposure share. Nothing here runs anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

SESSION_TOKEN_HEADER = "X-NeMo-Gym-Session-Token"
METADATA_KEY = "mcp"
RESERVED_TOOL_NAMES = frozenset({"verify", "seed_session", "aggregate_metrics", "mcp"})
URL_PATH = "/mcp"
ANY_ARGUMENTS: Mapping[str, Any] = {"type": "object", "additionalProperties": True}


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
