# SPDX-License-Identifier: Apache-2.0
"""The calls to the model that a rollout took, as its capture tells them: time, tokens, how each ended, its words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym._capture.payloads import answer_items, stream_events, usage_of
from nemo_gym._reports.facts import finish_reason_of


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


def model_calls(capture: Any) -> list[ModelCall]:
    """The calls of a capture block, in order; none if there is no capture."""
    return [_call(number, call) for number, call in enumerate(_captured(capture), 1)]


def said_in_calls(capture: Any) -> list[dict[str, Any]]:
    """What the model and its tools said in the calls of a capture block, as the items of a response.

    For a rollout that failed, and has no response of its own.
    """
    items: list[dict[str, Any]] = []
    answered: set[str] = set()
    for call in _captured(capture):
        if items:
            for answer in _tool_answers(call.get("request")):
                if answer["call_id"] not in answered:
                    answered.add(answer["call_id"])
                    items.append(answer)
        for item in answer_items(call.get("response")):
            items += _as_response_items(item)
    return items


def _captured(capture: Any) -> list[dict[str, Any]]:
    calls = capture.get("calls") if isinstance(capture, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _tool_answers(request: Any) -> Iterator[dict[str, Any]]:
    """The answers of tools that a request hands to the model, in either dialect."""
    asked = request if isinstance(request, dict) else {}
    for item in (*_list(asked.get("input")), *_list(asked.get("messages"))):
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
    calls = [call for call in _list(item["tool_calls"]) if isinstance(call, dict)]
    functions = [(call, call["function"]) for call in calls if isinstance(call.get("function"), dict)]
    return [*said, *({"type": "function_call", "call_id": call.get("id"), **function} for call, function in functions)]


def _finish_reason(response: Any) -> str | None:
    holders = [response]
    for event in stream_events(response) if isinstance(response, str) else ():
        holders += [event, event.get("response"), event.get("delta")]
    found = None
    for holder in holders:
        if isinstance(holder, dict):
            choice = next(iter(_list(holder.get("choices"))), None)
            chosen = choice.get("finish_reason") if isinstance(choice, dict) else holder.get("stop_reason")
            reason = chosen if isinstance(chosen, str) else finish_reason_of(holder)
            found = reason or found
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _call(number: int, call: Mapping[str, Any]) -> ModelCall:
    usage = usage_of(call.get("response"))
    status = call.get("status_code")
    return ModelCall(
        number=number,
        model=_model(call),
        status_code=status if type(status) is int else None,
        error=call["error_category"] if isinstance(call.get("error_category"), str) else None,
        finish_reason=_finish_reason(call.get("response")),
        latency_ms=_number(call.get("latency_ms")),
        ttft_ms=_number(call.get("latency_ttft_ms")),
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cached_tokens=usage.get("cached_tokens"),
        reasoning_tokens=usage.get("reasoning_tokens"),
    )


def _model(call: Mapping[str, Any]) -> str | None:
    ref, response = call.get("model_ref"), call.get("response")
    named = ref.get("name") if isinstance(ref, dict) else ref
    told = response.get("model") if isinstance(response, dict) else None
    return next((name for name in (named, told) if isinstance(name, str) and name), None)


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None
