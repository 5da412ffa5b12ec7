# SPDX-License-Identifier: Apache-2.0
"""Derive the tools with which a model acts in an OpenEnv environment from the schema of its actions.

An environment has one kind of action, which becomes the tool `step`. If its actions are calls to MCP tools, it offers
those tools instead.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STEP = "step"
_MCP_ACTION = "CallToolAction"
_HIDDEN_FIELD = "metadata"


@dataclass(frozen=True)
class ActionForm:
    """The form of an environment's actions."""

    tools: list[dict[str, Any]]
    text_field: str | None = None
    """The field that a plain text reply fills, if there is one."""
    are_mcp_calls: bool = False

    def make_action(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the action for a tool call."""
        return {"type": "call_tool", "tool_name": name, "arguments": arguments} if self.are_mcp_calls else arguments


def takes_mcp_calls(schema: Mapping[str, Any]) -> bool:
    """Return whether actions with this schema are calls to MCP tools."""
    return schema.get("title") == _MCP_ACTION


def read_schema(schema: Mapping[str, Any]) -> ActionForm:
    """Return the form of actions with this schema."""
    fields = {name: one for name, one in (schema.get("properties") or {}).items() if name != _HIDDEN_FIELD}
    required = [name for name in schema.get("required") or () if name != _HIDDEN_FIELD]
    texts = [name for name, one in fields.items() if one.get("type") == "string"]
    parameters = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
    if "$defs" in schema:
        parameters["$defs"] = schema["$defs"]
    tool = _make_tool(STEP, schema.get("description") or "Act in the environment.", parameters)
    is_text = len(texts) == 1 and set(required) <= {texts[0]}
    return ActionForm([tool], text_field=texts[0] if is_text else None)


def read_mcp_tools(tools: Sequence[Mapping[str, Any]]) -> ActionForm:
    """Return the form of actions that are calls to these MCP tools."""
    functions = [
        _make_tool(tool["name"], tool.get("description") or "", tool.get("inputSchema") or {}) for tool in tools
    ]
    return ActionForm(functions, are_mcp_calls=True)


def _make_tool(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}, **parameters}
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


def show_observation(observation: Any) -> str:
    """Return what a model sees: the text of a text observation, an MCP tool's output, else the whole as JSON."""
    if isinstance(observation, Mapping) and observation.keys() >= {"tool_name", "result", "error"}:
        observation = observation["result"] if observation["error"] is None else observation["error"]
        if isinstance(observation, Mapping) and isinstance(parts := observation.get("content"), list):
            return "\n".join(part.get("text", json.dumps(part)) for part in parts)
    elif isinstance(observation, Mapping) and len(observation) == 1:
        (only,) = observation.values()
        observation = only if isinstance(only, str) else observation
    if isinstance(observation, str):
        return observation
    return json.dumps(observation, ensure_ascii=False) if observation else ""
