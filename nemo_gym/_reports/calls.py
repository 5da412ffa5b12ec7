# SPDX-License-Identifier: Apache-2.0
"""The calls to the model that a rollout took, as its capture tells them: time, tokens, how each ended, its words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym._capture.payloads import answer_items
from nemo_gym._util.json_shapes import as_list, as_mapping
from nemo_gym._util.keys import MODEL_CALL_CAPTURE_KEY, TRAJECTORY_KEY


@dataclass(frozen=True)
class ModelCall:
    number: int
    """Counts from 1."""
    model: str | None
    status_code: int | None
    error: str | None
    finish_reason: str | None
    """How the model's answer ended."""
    latency_ms: float | None
    ttft_ms: float | None
    """Until the first byte of the answer."""
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None


def captured_calls(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the captured calls of a row in order, each with its request and response; none without a capture.

    A row holds what each call took under `ng_model_call_capture`, and what was said in it under `ng_trajectory`.
    """
    told = [one for one in as_list(as_mapping(row.get(TRAJECTORY_KEY)).get("model_calls")) if isinstance(one, dict)]
    said = {
        one["model_call_id"]: {name: one[name] for name in ("request", "response") if one.get(name) is not None}
        for one in told
        if isinstance(one.get("model_call_id"), str)
    }
    calls = as_list(as_mapping(row.get(MODEL_CALL_CAPTURE_KEY)).get("calls"))
    return [
        {**call, **(said.get(call["model_call_id"], {}) if isinstance(call.get("model_call_id"), str) else {})}
        for call in calls
        if isinstance(call, dict)
    ]


def model_calls(row: Mapping[str, Any]) -> list[ModelCall]:
    """Return the calls that a row took, in order; none if there is no capture."""
    return [_call(number, call) for number, call in enumerate(captured_calls(row), 1)]


def said_in_calls(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the model and its tools said in the captured calls of a row, as the items of a response.

    For a rollout that failed, and has no response of its own.
    """
    items: list[dict[str, Any]] = []
    answered: set[str] = set()
    for call in captured_calls(row):
        if items:
            for answer in _tool_answers(call.get("request")):
                if answer["call_id"] not in answered:
                    answered.add(answer["call_id"])
                    items.append(answer)
        for item in answer_items(call.get("response")):
            items += _as_response_items(item)
    return items


def _tool_answers(request: Any) -> Iterator[dict[str, Any]]:
    """The answers of tools that a request hands to the model, in either dialect."""
    asked = request if isinstance(request, dict) else {}
    for item in (*as_list(asked.get("input")), *as_list(asked.get("messages"))):
        if not isinstance(item, dict):
            continue
        if item.get("role") == "tool":
            item = {"type": "function_call_output", "call_id": item.get("tool_call_id"), "output": item.get("content")}
        if item.get("type") == "function_call_output" and isinstance(item.get("call_id"), str):
            yield item


def _as_response_items(item: dict[str, Any]) -> list[dict[str, Any]]:
    """An output item as it is; a chat message as its text and its tool calls."""
    if "tool_calls" not in item:
        return [item]
    said = [{"role": "assistant", "content": item["content"]}] if item.get("content") else []
    calls = [call for call in as_list(item["tool_calls"]) if isinstance(call, dict)]
    functions = [(call, call["function"]) for call in calls if isinstance(call.get("function"), dict)]
    return [*said, *({"type": "function_call", "call_id": call.get("id"), **function} for call, function in functions)]


def _call(number: int, call: Mapping[str, Any]) -> ModelCall:
    named = as_mapping(call.get("model_ref")).get("name")
    return ModelCall(
        number=number,
        model=_text(named) or _text(call.get("model")),
        status_code=_count(call.get("status_code")),
        error=_text(call.get("error_category")),
        finish_reason=_text(call.get("finish_reason")) or _text(call.get("response_status")),
        latency_ms=_number(call.get("latency_total_ms")),
        ttft_ms=_number(call.get("latency_ttft_ms")),
        input_tokens=_count(call.get("tokens_in")),
        output_tokens=_count(call.get("tokens_out")),
        cached_tokens=_count(call.get("cached_tokens")),
        reasoning_tokens=_count(call.get("tokens_reasoning")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None
