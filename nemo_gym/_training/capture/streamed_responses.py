# SPDX-License-Identifier: Apache-2.0
"""The response that a stream of server-sent events describes, and how the stream ended, in each dialect.

Anything a server may send is tolerated: an event of another shape adds nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from nemo_gym._util.json_shapes import as_int, as_list, as_mapping, as_text

_DONE = "[DONE]"
_RESPONSE_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_TEXT_PARTS = frozenset({"content", "reasoning_content", "reasoning", "refusal"})


@dataclass(frozen=True)
class StreamedResponse:
    """The content of a stream."""

    response: dict[str, Any] | None
    """The object that its events describe; None if they describe none."""
    has_ended: bool
    """Whether the final event of its dialect was sent."""
    has_failed: bool
    """Whether an event reports an error."""
    is_incomplete: bool
    """Whether it ended with `response.incomplete`."""


def read_stream(text: str, dialect: str) -> StreamedResponse:
    """Assemble the response that the events in `text` describe."""
    events = list(_parse_events(text))
    kinds = {as_text(event.get("type")) for event in events}
    has_failed = bool(kinds & {"error", "response.failed"}) or any(event.get("error") for event in events)
    if dialect == "chat":
        response = _assemble_completion(events)
        choices = as_list(as_mapping(response).get("choices"))
        has_ended = _DONE in _split_data(text) or any(as_mapping(choice).get("finish_reason") for choice in choices)
    elif dialect == "messages":
        response = _assemble_message(events)
        has_ended = "message_stop" in kinds
    else:
        response = _assemble_response(events)
        has_ended = bool(kinds & _RESPONSE_ENDS)
    return StreamedResponse(response, has_ended, has_failed, "response.incomplete" in kinds)


def _parse_events(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a server-sent-events body."""
    for data in _split_data(text):
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            continue
        if isinstance(event, dict):
            yield event


def _split_data(text: str) -> Iterator[str]:
    # Not splitlines: JSON text may hold other characters that Python treats as line ends.
    return (line[5:].strip() for line in text.split("\n") if line.startswith("data:"))


def _assemble_response(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the last response object; if the stream broke off, with the items finished by then."""
    latest: dict[str, Any] | None = None
    items: list[Any] = []
    for event in events:
        if isinstance(event.get("response"), dict):
            latest = event["response"]
            if as_text(event.get("type")) in _RESPONSE_ENDS:
                return latest
        elif as_text(event.get("type")) == "response.output_item.done":
            items.append(event.get("item"))
    if items:
        return {**(latest or {}), "output": items}
    return latest


def _assemble_completion(chunks: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    completion: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        if "choices" not in chunk:
            continue
        known = {name: value for name, value in chunk.items() if name != "choices" and value is not None}
        completion.update({**known, "object": "chat.completion"})
        for part in map(as_mapping, as_list(chunk["choices"])):
            index = as_int(part.get("index")) or 0
            choice = choices.setdefault(index, {"index": index, "finish_reason": None, "message": {}})
            _add_delta(choice["message"], as_mapping(part.get("delta")))
            for name, value in part.items():
                if name not in ("index", "delta") and value is not None:
                    choice[name] = value
    if not completion:
        return None
    return {**completion, "choices": [choices[index] for index in sorted(choices)]}


def _add_delta(message: dict[str, Any], delta: Any) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            for part in map(as_mapping, as_list(value)):
                _add_tool_call(message.setdefault("tool_calls", []), part)
        elif name in _TEXT_PARTS and isinstance(value, str) and isinstance(message.get(name), str):
            message[name] += value
        elif value is not None or name not in message:
            message[name] = value


def _add_tool_call(calls: list[dict[str, Any]], part: Any) -> None:
    index = part.get("index")
    call = next((one for one in calls if index is not None and one.get("index") == index), None)
    if call is None:
        calls.append({**part, "function": dict(as_mapping(part.get("function")))})
        return
    function = call["function"]
    for name, value in as_mapping(part.get("function")).items():
        if name == "arguments" and isinstance(value, str) and isinstance(function.get(name), str):
            function[name] += value
        elif value is not None:
            function[name] = value
    call.update({name: value for name, value in part.items() if name != "function" and value is not None})


def _assemble_message(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    message: dict[str, Any] | None = None
    blocks: dict[Any, dict[str, Any]] = {}
    for event in events:
        kind = as_text(event.get("type"))
        index = as_int(event.get("index"))
        if kind == "message_start":
            message = dict(as_mapping(event.get("message")))
        elif kind == "content_block_start":
            blocks[index] = dict(as_mapping(event.get("content_block")))
        elif kind == "content_block_delta" and index in blocks:
            block = blocks[index]
            for name, value in as_mapping(event.get("delta")).items():
                if isinstance(value, str) and name != "type":
                    block[name] = (as_text(block.get(name)) or "") + value
        elif kind == "message_delta" and message is not None:
            message.update(as_mapping(event.get("delta")))
            reported = {name: value for name, value in as_mapping(event.get("usage")).items() if value is not None}
            message["usage"] = {**as_mapping(message.get("usage")), **reported}
    if message is None:
        return None
    return {**message, "content": [_finish_block(block) for block in blocks.values()]}


def _finish_block(block: dict[str, Any]) -> dict[str, Any]:
    """Turn the pieces of a tool's input into the input."""
    pieces = block.pop("partial_json", None)
    if pieces:
        try:
            block["input"] = orjson.loads(pieces)
        except orjson.JSONDecodeError:
            block["input"] = {"_raw": pieces}
    return block
