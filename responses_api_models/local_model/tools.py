# SPDX-License-Identifier: Apache-2.0
"""Tools for a model that was never taught any: how they are described to it, and how its calls are read.

The form is the one that larger models were trained on (`<tool_call>{"name": …, "arguments": …}</tool_call>`), at most
one call a reply. A small model follows examples better than instructions, so that the prompt holds an answer in words
and, last, a call: in this order, and in no other that was tried, SmolLM2-135M calls tools when they are of use. Once a
result is there, the call is left out of the examples; otherwise that model calls again instead of answering.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import HTTPException

from responses_api_models.local_model.grammars import CALL_SUFFIX, write_call_prefix

Message = dict[str, str]
_BAD_REQUEST = 400
_EXAMPLES = {"string": "...", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None}


@dataclass(frozen=True)
class Tool:
    """A function that the model may call."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Toolbox:
    """The tools of a request, and whether one must be called."""

    tools: tuple[Tool, ...] = ()
    mode: Literal["none", "auto", "required"] = "none"

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        return {tool.name: tool.parameters for tool in self.tools}


def read_toolbox(body: Mapping[str, Any]) -> Toolbox:
    """Return what the chat request `body` offers."""
    offered = tuple(_read_tool(tool) for tool in body.get("tools") or ())
    choice = body.get("tool_choice") or "auto"
    if choice == "none" or not offered:
        if choice not in ("none", "auto"):
            raise HTTPException(_BAD_REQUEST, f"tool_choice is {choice!r}, but the request has no tools")
        return Toolbox()
    if isinstance(choice, str):
        return Toolbox(offered, "required" if choice == "required" else "auto")
    if choice["type"] == "function":
        return Toolbox(_pick_named(offered, [choice["function"]["name"]]), "required")
    if choice["type"] == "allowed_tools":
        allowed = choice["allowed_tools"]
        return Toolbox(_pick_named(offered, [tool["function"]["name"] for tool in allowed["tools"]]), allowed["mode"])
    raise HTTPException(_BAD_REQUEST, f"tool_choice {choice['type']!r} is not supported; only functions are")


def _read_tool(tool: Mapping[str, Any]) -> Tool:
    if tool["type"] != "function":
        raise HTTPException(_BAD_REQUEST, f"tool type {tool['type']!r} is not supported; only functions are")
    function = tool["function"]
    parameters = {"type": "object", "properties": {}, **(function.get("parameters") or {})}
    return Tool(function["name"], function.get("description") or "", parameters)


def _pick_named(offered: Sequence[Tool], names: Sequence[str]) -> tuple[Tool, ...]:
    found = tuple(tool for tool in offered if tool.name in names)
    if missing := set(names) - {tool.name for tool in found}:
        raise HTTPException(
            _BAD_REQUEST,
            f"tool_choice names {', '.join(map(repr, sorted(missing)))}, but the tools are "
            f"{', '.join(repr(tool.name) for tool in offered)}",
        )
    return found


# --- to the model -----------------------------------------------------------------------------------------------------


def write_instructions(box: Toolbox) -> str:
    """Return what the system message says about the tools."""
    answer = "You answer with a tool call." if box.mode == "required" else "You answer with a tool call or with text."
    # Names alone: types and values are the grammar's business, and telling them confuses a small model.
    listed = "\n".join(f"- {t.name}({', '.join(t.parameters['properties'])}): {t.description}" for t in box.tools)
    return f"{answer} Tools:\n{listed}"


def write_examples(box: Toolbox, *, has_result: bool) -> list[Message]:
    """Return turns that show how to answer; `has_result` if the conversation ends with a tool's result."""
    if box.mode != "auto":
        return []
    greeting = [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hello! How can I help you?"},
    ]
    if has_result:
        return greeting
    tool = box.tools[0]
    shown = {
        name: _make_example(tool.parameters["properties"].get(name)) for name in tool.parameters.get("required") or ()
    }
    return [
        *greeting,
        {"role": "user", "content": tool.description or f"Use {tool.name}."},
        {"role": "assistant", "content": write_call(tool.name, json.dumps(shown))},
    ]


def write_call(name: str, arguments: str) -> str:
    """Return a call as the model writes it."""
    return f"{write_call_prefix(name)}{arguments}{CALL_SUFFIX}"


def _make_example(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return _EXAMPLES["string"]
    if values := schema.get("enum"):
        return values[0]
    kind = schema.get("type", "string")
    return _EXAMPLES.get(kind[0] if isinstance(kind, list) else kind, "...")


# --- from the model ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A call that the model wrote."""

    name: str
    arguments: str


def read_call(text: str, box: Toolbox) -> tuple[str, Call | None]:
    """Return the words in `text`, and the call after them. A call that was cut off does not count and stays text."""
    for tool in box.tools:
        words, found, rest = text.partition(write_call_prefix(tool.name))
        end = _find_end_of_json(rest) if found else None
        if end is not None and rest.startswith(CALL_SUFFIX, end):
            return words.strip(), Call(tool.name, rest[:end])
    return text, None


def _find_end_of_json(text: str) -> int | None:
    try:
        return json.JSONDecoder().raw_decode(text)[1]
    except ValueError:
        return None
