# SPDX-License-Identifier: Apache-2.0
"""What the fake endpoint says: Responses objects and chat completions, with calls of whatever tool is offered.

Nothing of HTTP is known here.
"""

import functools
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(frozen=True)
class Settings:
    """How the endpoint behaves."""

    model: str = "fake"
    answer: str = "It is cold. \\boxed{A}"
    """What it says in the end."""
    tool_rounds: int = 1
    """How many tool results it asks for before it answers, if tools are offered."""
    scripts: dict[str, list[Any]] = field(default_factory=dict)
    """What it says turn by turn, texts and pairs of tool and arguments, by the last line of the first message."""
    latency_ms: float = 0.0
    """How long an answer takes; the median if `latency_sigma` spreads it."""
    latency_sigma: float = 0.0
    """Spread of a log-normal latency; 0: always the same."""
    faults: dict[str, float] = field(default_factory=dict)
    """Probability of each fault: an HTTP status, `reset` (no reply), `hang` (never one), `garbage` (JSON cut off),
    `empty` (a whole reply that says nothing)."""
    marked_faults: dict[str, str] = field(default_factory=dict)
    """The fault that every request which holds a text meets, by that text."""
    seed: int = 0
    """Of the dice that choose latencies and faults."""


def write_response(request: dict[str, Any], settings: Settings, number: int) -> dict[str, Any]:
    """A Responses object."""
    tools = request.get("tools") or []
    items = request["input"]
    results = sum(item.get("type") == "function_call_output" for item in items) if isinstance(items, list) else 0
    turn = find_turn(items, settings.scripts) if settings.scripts else None
    answer = turn if isinstance(turn, str) else settings.answer
    if isinstance(turn, list) or (turn is None and tools and results < settings.tool_rounds):
        name, arguments = (turn[0], orjson.dumps(turn[1]).decode()) if isinstance(turn, list) else call_of(tools[0])
        call = {"call_id": f"call_{number}", "name": name, "arguments": arguments}
        output = {"type": "function_call", "id": f"fc_{number}", **call, "status": "completed"}
    else:
        text = {"type": "output_text", "text": answer, "annotations": []}
        message: dict[str, Any] = {"role": "assistant", "status": "completed", "content": [text]}
        output = {"type": "message", "id": f"msg_{number}", **message}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": settings.model,
        "output": [output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": tools,
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 120,
        },
    }


def find_turn(items: Any, scripts: dict[str, list[Any]]) -> str | list[Any] | None:
    """Return what the script of this conversation says next; None if it has ended, or there is none."""
    if not isinstance(items, list) or not isinstance(first := items[0].get("content"), str):
        return None
    turns = scripts.get(first.rpartition("\n")[2])
    said = sum(item.get("type") == "function_call" or item.get("role") == "assistant" for item in items)
    return turns[said] if turns and said < len(turns) else None


def write_chat(request: dict[str, Any], settings: Settings, number: int) -> dict[str, Any]:
    """A chat completion."""
    tools = request.get("tools") or []
    results = sum(message["role"] == "tool" for message in request["messages"])
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    is_call = bool(tools) and results < settings.tool_rounds
    if is_call:
        name, arguments = call_of(tools[0]["function"])
        function = {"name": name, "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    else:
        message["content"] = settings.answer
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if is_call else "stop", "logprobs": None}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": settings.model,
        "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def call_of(tool: dict[str, Any]) -> tuple[str, str]:
    """The name of `tool` and arguments, as JSON text, that its schema accepts."""
    return tool["name"], _arguments_for(orjson.dumps(tool.get("parameters") or {}))


@functools.lru_cache(maxsize=10_000)
def _arguments_for(schema: bytes) -> str:
    return orjson.dumps(example_of(orjson.loads(schema))).decode()


def example_of(schema: Any) -> Any:
    """A value that a JSON schema of the usual kind accepts; the same each time."""
    match schema:
        case {"const": value} | {"default": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [first, *_]} | {"oneOf": [first, *_]} | {"allOf": [first, *_]}:
            return example_of(first)
        case {"type": [first, *_]}:
            return example_of({**schema, "type": first})
        case {"type": "object"} | {"properties": _}:
            properties = schema.get("properties", {})
            return {name: example_of(properties.get(name, {})) for name in schema.get("required", properties)}
        case {"type": "array"}:
            return [example_of(schema.get("items", {}))] * max(1, schema.get("minItems", 1))
        case {"type": "integer" | "number"}:
            return schema.get("minimum", 1)
        case {"type": "boolean"}:
            return True
        case {"type": "null"}:
            return None
    return "San Francisco"
