# SPDX-License-Identifier: Apache-2.0
"""A finished Anthropic message, replayed as the events of its streaming API, one delta per content block."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from nemo_gym._wire import sse


def anthropic_events(message: Mapping[str, Any]) -> Iterator[bytes]:
    """The stream of `message`, a reply in the shape of Anthropic's non-streaming API."""
    usage = message["usage"]
    begun: dict[str, Any] = {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 0},
    }
    yield _event("message_start", message={**message, **begun})
    for index, block in enumerate(message["content"]):
        start, deltas = _block(block)
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": message.get("stop_sequence")}
    yield _event("message_delta", delta=ending, usage={"output_tokens": usage["output_tokens"]})
    yield _event("message_stop")


def anthropic_failed(message: str, kind: str = "api_error") -> Iterator[bytes]:
    """The stream of a reply that could not be had: SDK clients raise an `APIStatusError` with `message`."""
    yield _event("error", error={"type": kind, "message": message})


def _block(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """How a content block begins, and the deltas that complete it."""
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


def _event(name: str, **data: Any) -> bytes:
    return sse.frame({"type": name, **data}, name)
