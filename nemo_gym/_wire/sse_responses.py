# SPDX-License-Identifier: Apache-2.0
"""A finished response, replayed as the official event sequence of the Responses API.

The reply is complete before the first event goes out, so every text and every argument string is one delta. What the
request's tolerant preparation renamed is given back under its old name (`sse_prepare`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from pydantic import BaseModel

from nemo_gym._wire import sse
from nemo_gym._wire.convert_plain import plain
from nemo_gym._wire.sse_prepare import Restore
from nemo_gym._wire.tokens import TOKEN_METADATA_FIELDS

_LAST_EVENT = {"incomplete": "response.incomplete", "failed": "response.failed"}
_UNFINISHED: dict[str, Any] = {
    "status": "in_progress",
    "output": [],
    "usage": None,
    "error": None,
    "incomplete_details": None,
}


def responses_events(
    response: BaseModel | Mapping[str, Any], restore: Restore | None = None, *, items_only: bool = False
) -> Iterator[bytes]:
    """The stream of `response`; it ends with `response.completed`, `.incomplete` or `.failed`, as its status says.

    With `items_only` nothing is said about an item before it is done.
    """
    body = plain(response)
    items = [_official(restore.item(item) if restore else item) for item in body["output"]]
    write = _Writer()
    yield write("response.created", response={**body, **_UNFINISHED})
    if not items_only:
        yield write("response.in_progress", response={**body, **_UNFINISHED})
    finished = []
    for index, item in enumerate(items):
        # An item goes out twice; one that carries token ids is large, so it is encoded once.
        encoded = orjson.Fragment(orjson.dumps(item))
        finished.append(encoded)
        if not items_only:
            yield write("response.output_item.added", output_index=index, item=_begun(item))
            yield from _item_events(write, index, item)
        yield write("response.output_item.done", output_index=index, item=encoded)
    last = _LAST_EVENT.get(body.get("status") or "", "response.completed")
    yield write(last, response={**body, "status": body.get("status") or "completed", "output": finished})


def responses_failed(
    message: str, *, response_id: str, created_at: int, model: str | None = None, code: str = "server_error"
) -> Iterator[bytes]:
    """The stream of a reply that could not be had: a well-formed one that ends with `response.failed`."""
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
    write = _Writer()
    yield write("response.created", response=body)
    yield write("response.failed", response={**body, "status": "failed", "error": {"code": code, "message": message}})


def _official(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """`item` in the one form that output has officially: a message that is a plain string here is parts there."""
    if item["type"] != "message" or not isinstance(item["content"], str):
        return item
    return {**item, "content": [{"type": "output_text", "text": item["content"], "annotations": []}]}


class _Writer:
    """Frames events and numbers them."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, name: str, /, **data: Any) -> bytes:
        number, self._next = self._next, self._next + 1
        return sse.frame({"type": name, "sequence_number": number, **data}, name)


def _begun(item: Mapping[str, Any]) -> dict[str, Any]:
    """`item` as it is announced, before its content."""
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


def _item_events(write: _Writer, index: int, item: Mapping[str, Any]) -> Iterator[bytes]:
    at = {"item_id": _item_id(index, item), "output_index": index}
    match item["type"]:
        case "message":
            for number, part in enumerate(item["content"]):
                yield from _content_events(write, {**at, "content_index": number}, part)
        case "function_call":
            yield write("response.function_call_arguments.delta", **at, delta=item["arguments"])
            call = {"name": item["name"], "arguments": item["arguments"]}
            yield write("response.function_call_arguments.done", **at, **call)
        case "reasoning":
            for number, part in enumerate(item["summary"]):
                yield from _summary_events(write, {**at, "summary_index": number}, part)
            for number, part in enumerate(item.get("content") or []):
                yield from _content_events(write, {**at, "content_index": number}, part)


def _content_events(write: _Writer, at: dict[str, Any], part: Mapping[str, Any]) -> Iterator[bytes]:
    kind, field, begun, extra = _content_shape(part)
    yield write("response.content_part.added", **at, part=begun)
    yield write(f"response.{kind}.delta", **at, delta=part[field], **extra)
    yield write(f"response.{kind}.done", **at, **{field: part[field]}, **extra)
    yield write("response.content_part.done", **at, part=part)


def _content_shape(part: Mapping[str, Any]) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """Event name, text field, empty form and further event fields of a content part."""
    match part["type"]:
        case "refusal":
            return "refusal", "refusal", {**part, "refusal": ""}, {}
        case "reasoning_text":
            return "reasoning_text", "text", {**part, "text": ""}, {}
        case _:
            begun = {**part, "text": "", "annotations": [], "logprobs": []}
            return "output_text", "text", begun, {"logprobs": part.get("logprobs") or []}


def _summary_events(write: _Writer, at: dict[str, Any], part: Mapping[str, Any]) -> Iterator[bytes]:
    yield write("response.reasoning_summary_part.added", **at, part={**part, "text": ""})
    yield write("response.reasoning_summary_text.delta", **at, delta=part["text"])
    yield write("response.reasoning_summary_text.done", **at, text=part["text"])
    yield write("response.reasoning_summary_part.done", **at, part=part)


def _item_id(index: int, item: Mapping[str, Any]) -> str:
    return str(item.get("id") or item.get("call_id") or f"item_{index}")
