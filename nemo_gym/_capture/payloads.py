# SPDX-License-Identifier: Apache-2.0
"""What can be told from the body of a model's answer, in each dialect, plain or streamed: usage and output items.

Bodies come from other people's servers, so every look inside tolerates another shape and then finds nothing.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
OPTIONAL_TOKEN_FIELDS = ("routed_experts",)
# The events with which each dialect ends a stream that failed after its 200 was sent.
_FAILURE_EVENTS = frozenset({"response.failed", "error"})


def stream_events(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a server-sent-events body."""
    for line in text.splitlines():
        if not line.startswith("data:"):
            continue
        try:
            event = orjson.loads(line[5:].strip())
        except orjson.JSONDecodeError:
            continue
        if isinstance(event, dict):
            yield event


def stream_failed(text: str) -> bool:
    """Whether a streamed answer ended in a failure although its status was 200."""
    return any(event.get("type") in _FAILURE_EVENTS or event.get("error") for event in stream_events(text))


def usage_of(response: Any) -> dict[str, int]:
    """Token counts by one set of names for all dialects; what the answer does not tell is absent."""
    reported = _reported_usage(response)
    counts = {
        "input_tokens": _first(reported, "input_tokens", "prompt_tokens"),
        "output_tokens": _first(reported, "output_tokens", "completion_tokens"),
        "total_tokens": _first(reported, "total_tokens"),
        "cached_tokens": _first(_detail(reported, "input_tokens_details", "prompt_tokens_details"), "cached_tokens"),
        "reasoning_tokens": _first(
            _detail(reported, "output_tokens_details", "completion_tokens_details"), "reasoning_tokens"
        ),
    }
    if counts["cached_tokens"] is None:
        counts["cached_tokens"] = _first(reported, "cache_read_input_tokens")
    known = {name: count for name, count in counts.items() if count is not None}
    if "total_tokens" not in known and {"input_tokens", "output_tokens"} <= known.keys():
        known["total_tokens"] = known["input_tokens"] + known["output_tokens"]
    return known


def token_bundles(response: Any) -> list[dict[str, Any]]:
    """The complete sets of token ids and log-probs in an answer, each with what identifies the item that carries it."""
    bundles = []
    for index, item in enumerate(answer_items(response)):
        if all(isinstance(item.get(name), list) for name in TOKEN_FIELDS):
            tokens = {
                name: item[name] for name in (*TOKEN_FIELDS, *OPTIONAL_TOKEN_FIELDS) if item.get(name) is not None
            }
            bundles.append({"item_index": index, "item_keys": sorted(item_keys(item)), **tokens})
    return bundles


def answer_id(response: Any) -> str | None:
    """The id that the model gave its answer, plain or streamed."""
    holders: list[Mapping[str, Any]] = [_mapping(response)]
    for event in stream_events(response) if isinstance(response, str) else ():
        holders += [_mapping(event.get("response")), _mapping(event.get("message")), event]
    return next((holder["id"] for holder in holders if isinstance(holder.get("id"), str)), None)


def tool_call_ids(response: Any) -> list[str]:
    """The ids of the tool calls that an answer asks for, each once, in order."""
    found: dict[str, None] = {}
    for holder in stream_events(response) if isinstance(response, str) else [_mapping(response)]:
        for call in _calls_in(holder):
            name = call.get("call_id") or call.get("id")
            if isinstance(name, str):
                found[name] = None
    return list(found)


def _calls_in(holder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The tool calls in a body or in one event of a stream, whichever dialect it is."""
    for item in (*_list(holder.get("output")), holder.get("item")):
        if _mapping(item).get("type") == "function_call":
            yield _mapping(item)
    for choice in _list(holder.get("choices")):
        for part in ("message", "delta"):
            yield from map(_mapping, _list(_mapping(_mapping(choice).get(part)).get("tool_calls")))
    for block in (*_list(holder.get("content")), holder.get("content_block")):
        if _mapping(block).get("type") == "tool_use":
            yield _mapping(block)


def item_keys(item: Mapping[str, Any]) -> set[str]:
    """What tells a generated item from the others: its ids, and for plain text a digest of the text."""
    calls = item.get("tool_calls")
    named = [item.get("call_id"), item.get("id")]
    # An agent's loop turns the last tool call of a chat message into the item that ends the turn.
    named += [_mapping(call).get("id") for call in calls[-1:]] if isinstance(calls, list) else []
    keys = {f"id:{name}" for name in named if isinstance(name, str) and name}
    text = "" if calls else _text_of(item.get("content")).strip()
    return keys | {f"text:{hashlib.sha256(text.encode()).hexdigest()}"} if text else keys


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [_mapping(part).get("text") for part in content] if isinstance(content, list) else []
    return "".join(part for part in parts if isinstance(part, str))


def answer_items(response: Any) -> list[dict[str, Any]]:
    """The output items of a Responses answer, or the messages of a chat completion."""
    if isinstance(response, str):
        finals = [
            event.get("response") for event in stream_events(response) if event.get("type") == "response.completed"
        ]
        response = finals[-1] if finals else None
    if not isinstance(response, dict):
        return []
    if isinstance(output := response.get("output"), list):
        return [item for item in output if isinstance(item, dict)]
    choices = response.get("choices")
    messages = [_mapping(choice).get("message") for choice in choices] if isinstance(choices, list) else []
    return [message for message in messages if isinstance(message, dict)]


def _reported_usage(response: Any) -> Mapping[str, Any]:
    if not isinstance(response, str):
        return _mapping(_mapping(response).get("usage"))
    merged: dict[str, Any] = {}
    for event in stream_events(response):
        # Responses nest the usage in `response`, Messages in `message` (start) and at the top (delta), chat at the top.
        for holder in (event, _mapping(event.get("response")), _mapping(event.get("message"))):
            usage = _mapping(holder.get("usage"))
            merged.update({name: value for name, value in usage.items() if value is not None})
    return merged


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _detail(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((_mapping(usage[name]) for name in names if isinstance(usage.get(name), dict)), {})


def _first(values: Mapping[str, Any], *names: str) -> int | None:
    return next((values[name] for name in names if type(values.get(name)) is int), None)
