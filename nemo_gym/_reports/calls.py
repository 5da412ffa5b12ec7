# SPDX-License-Identifier: Apache-2.0
"""The calls to the model that a rollout took, as its capture tells them: how long each took, and how many tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym._capture.payloads import usage_of


@dataclass(frozen=True)
class ModelCall:
    number: int
    """Counts from 1."""
    model: str | None
    status_code: int | None
    error: str | None
    latency_ms: float | None
    ttft_ms: float | None
    """Until the first byte of the answer."""
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None


def model_calls(capture: Any) -> list[ModelCall]:
    """The calls of a capture block, in order; none if there is no capture."""
    calls = capture.get("calls") if isinstance(capture, dict) else None
    listed = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [_call(number, call) for number, call in enumerate(listed, 1)]


def _call(number: int, call: Mapping[str, Any]) -> ModelCall:
    usage = usage_of(call.get("response"))
    status = call.get("status_code")
    return ModelCall(
        number=number,
        model=_model(call),
        status_code=status if type(status) is int else None,
        error=call["error_category"] if isinstance(call.get("error_category"), str) else None,
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
