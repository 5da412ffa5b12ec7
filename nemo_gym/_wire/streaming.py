# SPDX-License-Identifier: Apache-2.0
"""A finished reply, replayed as the events that a streaming client of its dialect expects.

The reply is complete before the first event goes out, so every text and every argument string is one delta. What
streaming clients send is trimmed in `nemo_gym.responses_streaming` and `nemo_gym.chat_streaming`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from pydantic import BaseModel

from nemo_gym._wire.schema.tokens import TOKEN_METADATA_FIELDS
from nemo_gym._wire.schema.wire_model import to_plain

Json = Mapping[str, Any]
ToolNames = Mapping[str, tuple[str, str]]
"""Joined tool names, and the namespace and name that each stands for."""

_LAST_EVENT = {"incomplete": "response.incomplete", "failed": "response.failed"}
_UNFINISHED: dict[str, Any] = {
    "status": "in_progress",
    "output": [],
    "usage": None,
    "error": None,
    "incomplete_details": None,
}
_DONE = b"data: [DONE]\n\n"
_REASONING_KEYS = ("reasoning_content", "reasoning")
_CHUNK_KEYS = {"id", "created", "model", "system_fingerprint", "service_tier"}
_STREAMED_MESSAGE_KEYS = {"role", "content", "refusal", "tool_calls", *_REASONING_KEYS}


def stream_response(
    response: BaseModel | Json, tool_names: ToolNames | None = None, *, items_only: bool = False
) -> Iterator[bytes]:
    """Yield the events of `response`; the last is `response.completed`, `.incomplete` or `.failed`, as its status says.

    Tools get the names back that `tool_names` holds. With `items_only` nothing is said about an item before it is done.
    """
    body = to_plain(response)
    write = _EventWriter()
    yield write("response.created", response={**body, **_UNFINISHED})
    if not items_only:
        yield write("response.in_progress", response={**body, **_UNFINISHED})
    finished = []
    for index, item in enumerate(body["output"]):
        item = _make_official(item, tool_names or {})
        # An item goes out twice; one that carries token ids is large, so it is encoded once.
        encoded = orjson.Fragment(orjson.dumps(item))
        finished.append(encoded)
        if not items_only:
            yield write("response.output_item.added", output_index=index, item=_empty_item(item))
            yield from _stream_item(write, index, item)
        yield write("response.output_item.done", output_index=index, item=encoded)
    last = _LAST_EVENT.get(body.get("status") or "", "response.completed")
    yield write(last, response={**body, "status": body.get("status") or "completed", "output": finished})


def stream_response_failure(
    message: str, *, response_id: str, created_at: int, model: str | None = None, code: str = "server_error"
) -> Iterator[bytes]:
    """Yield the events of a reply that could not be had: a well-formed stream that ends with `response.failed`."""
    body = {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "model": model or "",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **_UNFINISHED,
    }
    write = _EventWriter()
    yield write("response.created", response=body)
    yield write("response.failed", response={**body, "status": "failed", "error": {"code": code, "message": message}})


def _make_official(item: Json, tool_names: ToolNames) -> Json:
    """Return `item` in its one official form: a text is parts, and a tool has the name that the client gave it."""
    if item["type"] == "function_call" and item["name"] in tool_names:
        namespace, name = tool_names[item["name"]]
        return {**item, "name": name, "namespace": namespace}
    if item["type"] == "message" and isinstance(item["content"], str):
        return {**item, "content": [{"type": "output_text", "text": item["content"], "annotations": []}]}
    return item


class _EventWriter:
    """Frames events and numbers them."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, name: str, /, **data: Any) -> bytes:
        number = self._next
        self._next = self._next + 1
        return _frame({"type": name, "sequence_number": number, **data}, name)


def _empty_item(item: Json) -> dict[str, Any]:
    """Return `item` as it is announced, before its content."""
    light = {key: value for key, value in item.items() if key not in TOKEN_METADATA_FIELDS}
    match item["type"]:
        case "message":
            return {**light, "status": "in_progress", "content": []}
        case "function_call":
            return {**light, "status": "in_progress", "arguments": ""}
        case "reasoning":
            return {**light, "summary": [], "content": None}
        case _:
            return light


def _stream_item(write: _EventWriter, index: int, item: Json) -> Iterator[bytes]:
    at = {"item_id": str(item.get("id") or item.get("call_id") or f"item_{index}"), "output_index": index}
    match item["type"]:
        case "message":
            for number, part in enumerate(item["content"]):
                yield from _stream_content(write, {**at, "content_index": number}, part)
        case "function_call":
            yield write("response.function_call_arguments.delta", **at, delta=item["arguments"])
            call = {"name": item["name"], "arguments": item["arguments"]}
            yield write("response.function_call_arguments.done", **at, **call)
        case "reasoning":
            for number, part in enumerate(item["summary"]):
                summary = {**at, "summary_index": number}
                yield write("response.reasoning_summary_part.added", **summary, part={**part, "text": ""})
                yield write("response.reasoning_summary_text.delta", **summary, delta=part["text"])
                yield write("response.reasoning_summary_text.done", **summary, text=part["text"])
                yield write("response.reasoning_summary_part.done", **summary, part=part)
            for number, part in enumerate(item.get("content") or []):
                yield from _stream_content(write, {**at, "content_index": number}, part)


def _stream_content(write: _EventWriter, at: dict[str, Any], part: Json) -> Iterator[bytes]:
    extra: dict[str, Any] = {}
    match part["type"]:
        case "refusal":
            kind = "refusal"
            field = "refusal"
            empty = {**part, "refusal": ""}
        case "reasoning_text":
            kind = "reasoning_text"
            field = "text"
            empty = {**part, "text": ""}
        case _:
            kind = "output_text"
            field = "text"
            empty = {**part, "text": "", "annotations": [], "logprobs": []}
            extra = {"logprobs": part.get("logprobs") or []}
    yield write("response.content_part.added", **at, part=empty)
    yield write(f"response.{kind}.delta", **at, delta=part[field], **extra)
    yield write(f"response.{kind}.done", **at, **{field: part[field]}, **extra)
    yield write("response.content_part.done", **at, part=part)


def stream_completion(completion: BaseModel | Json, include_usage: bool = False) -> Iterator[bytes]:
    """Yield `completion` as chunks, one for every piece (reasoning, text, refusal, a tool call), up to `[DONE]`.

    `include_usage` is the request's `stream_options.include_usage`.
    """
    body = to_plain(completion)
    known = {key: value for key, value in body.items() if key in _CHUNK_KEYS and value is not None}
    head = {**known, "object": "chat.completion.chunk"}
    if include_usage:
        head["usage"] = None
    # What a server adds to a completion (vLLM: `prompt_token_ids`) rides on the first chunk.
    extras = _omit(body, {*_CHUNK_KEYS, "object", "choices", "usage"})
    for choice in body["choices"]:
        for piece in _cut_choice(choice):
            yield _frame({**extras, **head, "choices": [piece]})
            extras = {}
    if include_usage:
        yield _frame({**head, "choices": [], "usage": body.get("usage")})
    yield _DONE


def stream_completion_failure(message: str, code: str = "server_error") -> Iterator[bytes]:
    """Yield the chunks of a reply that could not be had: SDK clients raise an `APIError` with `message`."""
    yield _frame({"error": {"message": message, "type": code, "param": None, "code": code}})
    yield _DONE


def _cut_choice(choice: Json) -> Iterator[dict[str, Any]]:
    """Yield the pieces of a choice; the last carries how it ended, and what else a server said about it."""
    index = choice["index"]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    if reasoning := {key: message[key] for key in _REASONING_KEYS if message.get(key)}:
        deltas.append(reasoning)
    deltas += [{key: message[key]} for key in ("content", "refusal") if message.get(key) is not None]
    calls = enumerate(message.get("tool_calls") or [])
    deltas += [{"tool_calls": [{"index": number, **call}]} for number, call in calls]
    for delta in deltas:
        yield {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
    yield {
        **_omit(choice, {"index", "message", "logprobs", "finish_reason"}),
        "index": index,
        "delta": _omit(message, _STREAMED_MESSAGE_KEYS),
        "logprobs": choice.get("logprobs"),
        "finish_reason": choice.get("finish_reason"),
    }


def _omit(mapping: Json, keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys and value is not None}


def stream_message(message: Json) -> Iterator[bytes]:
    """Yield the events of `message`, a reply in the shape of Anthropic's non-streaming API."""
    usage = message["usage"]
    empty: dict[str, Any] = {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 0},
    }
    yield _frame_message_event("message_start", message={**message, **empty})
    for index, block in enumerate(message["content"]):
        start, deltas = _cut_block(block)
        yield _frame_message_event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _frame_message_event("content_block_delta", index=index, delta=delta)
        yield _frame_message_event("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": message.get("stop_sequence")}
    yield _frame_message_event("message_delta", delta=ending, usage={"output_tokens": usage["output_tokens"]})
    yield _frame_message_event("message_stop")


def stream_message_failure(message: str, kind: str = "api_error") -> Iterator[bytes]:
    """Yield the events of a reply that could not be had: SDK clients raise an `APIStatusError` with `message`."""
    yield _frame_message_event("error", error={"type": kind, "message": message})


def _cut_block(block: Json) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return how a content block begins, and the deltas that complete it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            if block["signature"]:
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            arguments = orjson.dumps(block["input"]).decode()
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]
        case _:
            return dict(block), []


def _frame_message_event(name: str, **data: Any) -> bytes:
    return _frame({"type": name, **data}, name)


def _frame(data: Json, name: str | None = None) -> bytes:
    """Encode one event; JSON holds no raw line break, so one `data:` line is enough."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + orjson.dumps(data) + b"\n\n"
