# SPDX-License-Identifier: Apache-2.0
"""One call to a model endpoint, as it is told from a captured exchange.

An exchange is the JSON object that the middleware writes: request and response as they crossed the wire, times, status.
Bodies come from other people's servers, so every look inside tolerates another shape and then finds nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym._capture.usage import cached_tokens_of, extract_token_stats
from nemo_gym._config.server_types import ModelServerRef
from nemo_gym._util.json_shapes import as_list, as_mapping

Dialect = Literal["responses", "chat", "messages"]

DIALECT_OF_PATH: dict[str, Dialect] = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
}
PAYLOAD_FIELDS = ("request", "response", "request_raw", "response_raw")


class ModelCallRecord(BaseModel):
    """One captured call to a model endpoint."""

    model_config = ConfigDict(protected_namespaces=())

    model_call_id: str | None = None
    """Unique across rollouts and servers."""
    response_id: str | None = None
    """The id that the model gave its response."""
    call_index: int
    """The place of the call in the capture of its rollout, from 0; calls stand in the order in which they ended."""
    model_ref: ModelServerRef | None = None
    """The model server that answered."""
    model: str | None = None
    dialect: str | None = None
    """Which of the three model endpoints was called: `responses`, `chat` or `messages`."""
    status_code: int | None = None
    """None if no response was started."""
    response_status: str | None = None
    finish_reason: str | None = None
    started_at: float | None = None
    """Unix time in seconds at which the request arrived."""
    completed_at: float | None = None
    """Unix time in seconds at which the last byte of the response was ready."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    tokens_total: int | None = None
    request: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    """The body; for a stream, the object that its events describe."""
    request_raw: str | None = None
    """The text of a request that is no JSON object."""
    response_raw: str | None = None
    """The text of a stream, or of a response that is no JSON object."""
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    """What the model asked for: call_id, name, arguments."""
    reasoning_content: str | None = None
    cache_hit: bool | None = None
    cached_tokens: int | None = None
    cache_creation_tokens: int | None = None
    error_category: str | None = None
    """None for a success; otherwise see `nemo_gym._capture.exchange`."""
    latency_total_ms: float | None = None
    latency_ttft_ms: float | None = None
    """From the arrival of the request to the first byte of the response body."""


def build_model_call_record(exchange: Mapping[str, Any], *, call_index: int) -> ModelCallRecord:
    """Tell one call from its captured exchange."""
    response, request = as_mapping(exchange.get("response")), as_mapping(exchange.get("request"))
    usage = as_mapping(response.get("usage"))
    cached = cached_tokens_of(usage)
    return ModelCallRecord(
        **{
            name: exchange.get(name)
            for name in (
                *("model_call_id", "model_ref", "dialect", "status_code", "started_at", "completed_at"),
                *("request", "response", "request_raw", "response_raw", "error_category", "latency_ttft_ms"),
            )
        },
        **extract_token_stats(usage),
        call_index=call_index,
        response_id=_text(response.get("id")),
        model=_text(response.get("model")) or _text(request.get("model")),
        response_status=_text(response.get("status")),
        finish_reason=finish_reason_of(response),
        tool_calls=list(_tool_calls(response)),
        reasoning_content="\n".join(_reasoning_texts(response)) or None,
        cache_hit=None if cached is None else cached > 0,
        cached_tokens=cached,
        latency_total_ms=exchange.get("latency_ms"),
    )


def finish_reason_of(response: Mapping[str, Any]) -> str | None:
    """Return why the model stopped, in the words of its dialect."""
    first_choice = as_mapping(next(iter(as_list(response.get("choices"))), None))
    return (
        _text(response.get("stop_reason"))
        or _text(first_choice.get("finish_reason"))
        or _text(as_mapping(response.get("incomplete_details")).get("reason"))
    )


def _tool_calls(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for item in map(as_mapping, as_list(response.get("output"))):
        if item.get("type") == "function_call":
            yield _tool_call(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments"))
    for message in _messages(response):
        for call in map(as_mapping, as_list(message.get("tool_calls"))):
            function = as_mapping(call.get("function"))
            yield _tool_call(call.get("id"), function.get("name"), function.get("arguments"))
    for block in map(as_mapping, as_list(response.get("content"))):
        if block.get("type") == "tool_use":
            yield _tool_call(block.get("id"), block.get("name"), block.get("input"))


def _tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"call_id": call_id, "name": name, "arguments": _parse_arguments(arguments)}


def _parse_arguments(given: Any) -> dict[str, Any]:
    if isinstance(given, dict):
        return given
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}  # a call without arguments
    try:
        parsed = orjson.loads(given) if isinstance(given, str) else None
    except orjson.JSONDecodeError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"_raw": given if isinstance(given, str) else str(given)}


def _reasoning_texts(response: Mapping[str, Any]) -> Iterator[str]:
    for item in map(as_mapping, as_list(response.get("output"))):
        if item.get("type") == "reasoning":
            for part in map(as_mapping, (*as_list(item.get("summary")), *as_list(item.get("content")))):
                if text := _text(part.get("text")):
                    yield text
    for message in _messages(response):
        if text := _text(message.get("reasoning_content")) or _text(message.get("reasoning")):
            yield text
    for block in map(as_mapping, as_list(response.get("content"))):
        if block.get("type") == "thinking" and (text := _text(block.get("thinking"))):
            yield text


def _messages(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [as_mapping(as_mapping(choice).get("message")) for choice in as_list(response.get("choices"))]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
