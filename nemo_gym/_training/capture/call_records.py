# SPDX-License-Identifier: Apache-2.0
"""One call to a model endpoint, read from a captured exchange, and totals over the calls of a rollout.

An exchange is the JSON object that the middleware writes: request and response as sent, times, status. Bodies come from
third-party servers, so every access tolerates another shape and then finds nothing.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym._config.server_types import ModelServerRef
from nemo_gym._util.json_shapes import as_list, as_mapping, as_text

Dialect = Literal["responses", "chat", "messages"]

DIALECT_OF_PATH: dict[str, Dialect] = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
}
_SESSION_PATH = re.compile(r"/sessions/[^/]+(?=/)")
PAYLOAD_FIELDS = ("request", "response", "request_raw", "response_raw")


def find_dialect(path: str) -> Dialect | None:
    """Return the dialect of a model endpoint, also below a gateway session; None for any other path."""
    return DIALECT_OF_PATH.get(path) or DIALECT_OF_PATH.get(_SESSION_PATH.sub("", path, count=1))


class ModelCallRecord(BaseModel):
    """One captured call to a model endpoint."""

    model_config = ConfigDict(protected_namespaces=())

    model_call_id: str | None = None
    """Unique across rollouts and servers."""
    response_id: str | None = None
    """The id that the model gave its response."""
    call_index: int
    """The position of the call in the capture of its rollout, from 0; calls are ordered by when they ended."""
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
    """The text of a request that is not a JSON object."""
    response_raw: str | None = None
    """The text of a stream, or of a response that is not a JSON object."""
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    """The model's tool calls: call_id, name, arguments."""
    reasoning_content: str | None = None
    cache_hit: bool | None = None
    cached_tokens: int | None = None
    cache_creation_tokens: int | None = None
    error_category: str | None = None
    """None for a success; otherwise see `nemo_gym._training.capture.capture_middleware`."""
    latency_total_ms: float | None = None
    latency_ttft_ms: float | None = None
    """From the arrival of the request to the first byte of the response body."""


def build_model_call_record(exchange: Mapping[str, Any], *, call_index: int) -> ModelCallRecord:
    """Return the record of a captured exchange."""
    response = as_mapping(exchange.get("response"))
    request = as_mapping(exchange.get("request"))
    usage = as_mapping(response.get("usage"))
    cached = read_cached_tokens(usage)
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
        response_id=as_text(response.get("id")),
        model=as_text(response.get("model")) or as_text(request.get("model")),
        response_status=as_text(response.get("status")),
        finish_reason=_read_finish_reason(response),
        tool_calls=list(_find_tool_calls(response)),
        reasoning_content="\n".join(_find_reasoning(response)) or None,
        cache_hit=None if cached is None else cached > 0,
        cached_tokens=cached,
        latency_total_ms=exchange.get("latency_ms"),
    )


def _read_finish_reason(response: Mapping[str, Any]) -> str | None:
    """Return why the model stopped, in the terms of its dialect."""
    first_choice = as_mapping(next(iter(as_list(response.get("choices"))), None))
    return (
        as_text(response.get("stop_reason"))
        or as_text(first_choice.get("finish_reason"))
        or as_text(as_mapping(response.get("incomplete_details")).get("reason"))
    )


def _find_tool_calls(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for item in map(as_mapping, as_list(response.get("output"))):
        if item.get("type") == "function_call":
            yield _build_tool_call(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments"))
    for message in _list_messages(response):
        for call in map(as_mapping, as_list(message.get("tool_calls"))):
            function = as_mapping(call.get("function"))
            yield _build_tool_call(call.get("id"), function.get("name"), function.get("arguments"))
    for block in map(as_mapping, as_list(response.get("content"))):
        if block.get("type") == "tool_use":
            yield _build_tool_call(block.get("id"), block.get("name"), block.get("input"))


def _build_tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"call_id": call_id, "name": name, "arguments": parse_arguments(arguments)}


def parse_arguments(given: Any) -> dict[str, Any]:
    """Return the arguments of a tool call as an object; anything else goes under `_raw`."""
    if isinstance(given, dict):
        return given
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}  # a call without arguments
    if not isinstance(given, str):
        return {"_raw": str(given)}
    try:
        parsed = orjson.loads(given)
    except orjson.JSONDecodeError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"_raw": given}


def _find_reasoning(response: Mapping[str, Any]) -> Iterator[str]:
    for item in map(as_mapping, as_list(response.get("output"))):
        if item.get("type") == "reasoning":
            for part in map(as_mapping, (*as_list(item.get("summary")), *as_list(item.get("content")))):
                if text := as_text(part.get("text")):
                    yield text
    for message in _list_messages(response):
        if text := as_text(message.get("reasoning_content")) or as_text(message.get("reasoning")):
            yield text
    for block in map(as_mapping, as_list(response.get("content"))):
        if block.get("type") == "thinking" and (text := as_text(block.get("thinking"))):
            yield text


def _list_messages(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [as_mapping(as_mapping(choice).get("message")) for choice in as_list(response.get("choices"))]


_INPUT_DETAILS = ("input_tokens_details", "prompt_tokens_details")
_OUTPUT_DETAILS = ("output_tokens_details", "completion_tokens_details")


def extract_token_stats(usage: Any) -> dict[str, int | None]:
    """Return the token counts of a `usage` object; None for those it does not report.

    Anthropic counts cache reads and writes separately from the input; here the input includes them.
    """
    reported = as_mapping(usage)
    tokens_in = _read_first_count(reported, ("input_tokens", "prompt_tokens"))
    tokens_out = _read_first_count(reported, ("output_tokens", "completion_tokens"))
    total = _read_first_count(reported, ("total_tokens",))
    created = _read_first_count(reported, ("cache_creation_input_tokens",))
    from_cache = (_read_first_count(reported, ("cache_read_input_tokens",)) or 0) + (created or 0)
    if tokens_in is None and from_cache:
        tokens_in = from_cache  # all of the input was in the cache, and Anthropic then leaves its own count out
    elif tokens_in is not None and total is None and _is_cache_counted_separately(reported):
        tokens_in += from_cache
    if total is None and tokens_in is not None and tokens_out is not None:
        total = tokens_in + tokens_out
    nested = ("reasoning_tokens", "reasoning_output_tokens")
    top = ("reasoning_output_tokens",)
    return {
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "tokens_reasoning": _read_first_detail(reported, _OUTPUT_DETAILS, nested, top),
        "tokens_total": total,
        "cache_creation_tokens": created,
    }


def read_cached_tokens(usage: Any) -> int | None:
    """Return how many input tokens a model read from its cache."""
    nested = ("cached_tokens", "cached_input_tokens")
    top = ("cache_read_input_tokens", "cached_input_tokens")
    return _read_first_detail(as_mapping(usage), _INPUT_DETAILS, nested, top)


def _is_cache_counted_separately(usage: Mapping[str, Any]) -> bool:
    """Return whether the input is reported without the cache: OpenAI's two dialects include it and give details."""
    return "input_tokens" in usage and not any(isinstance(usage.get(name), dict) for name in _INPUT_DETAILS)


def _read_first_detail(
    usage: Mapping[str, Any], groups: tuple[str, ...], nested: tuple[str, ...], top: tuple[str, ...]
) -> int | None:
    for group in groups:
        if (count := _read_first_count(as_mapping(usage.get(group)), nested)) is not None:
            return count
    return _read_first_count(usage, top)


def _read_first_count(values: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((values[name] for name in names if type(values.get(name)) is int and values[name] >= 0), None)


def list_answer_items(response: Any) -> list[dict[str, Any]]:
    """Return the output items of a Responses answer, or the messages of a chat completion."""
    answer = as_mapping(response)
    if isinstance(output := answer.get("output"), list):
        return [item for item in output if isinstance(item, dict)]
    messages = [as_mapping(choice).get("message") for choice in as_list(answer.get("choices"))]
    return [message for message in messages if isinstance(message, dict)]


def identify_item(item: Mapping[str, Any]) -> set[str]:
    """Return the keys by which a generated item is recognized: its ids, and for plain text a digest of the text."""
    calls = item.get("tool_calls")
    named = [item.get("call_id"), item.get("id")]
    # An agent's loop turns the last tool call of a chat message into the item that ends the turn.
    named += [as_mapping(call).get("id") for call in as_list(calls)[-1:]]
    keys = {f"id:{name}" for name in named if isinstance(name, str) and name}
    if calls:
        return keys
    if text := _join_text(item.get("content")).strip():
        keys.add(f"text:{hashlib.sha256(text.encode()).hexdigest()}")
    return keys


def _join_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [as_mapping(part).get("text") for part in as_list(content)]
    return "".join(part for part in parts if isinstance(part, str))


_SUMS = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "latency_total_ms")


def aggregate_model_call_records(records: Sequence[ModelCallRecord]) -> dict[str, Any]:
    """Return the number of calls and their totals. A total that no call reported is None, not zero."""
    metrics: dict[str, Any] = {"num_calls": len(records)}
    for name in _SUMS:
        known = [value for record in records if (value := getattr(record, name)) is not None]
        metrics[name] = sum(known) if known else None
    return metrics
