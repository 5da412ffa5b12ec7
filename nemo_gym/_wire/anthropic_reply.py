# SPDX-License-Identifier: Apache-2.0
"""A response as an Anthropic message.

Token ids and log-probs have no place in this dialect; they stay with the response they came from.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from pydantic import BaseModel

from nemo_gym._wire.anthropic_request import RAW_ARGUMENTS
from nemo_gym._wire.convert_plain import plain

Json = Mapping[str, Any]


def from_response(response: BaseModel | Json, model: str | None = None) -> dict[str, Any]:
    """The message of Anthropic's non-streaming API; `model` is the name that the client asked for."""
    body = plain(response)
    content = [block for item in body["output"] for block in _blocks(item)]
    return {
        "id": f"msg_{body['id'].removeprefix('resp_')}",
        "type": "message",
        "role": "assistant",
        "model": model or body["model"],
        "content": content,
        **_ending(body, content),
        "usage": _usage(body.get("usage")),
    }


def _blocks(item: Json) -> Iterator[dict[str, Any]]:
    match item["type"]:
        case "reasoning":
            yield from _thinking(item)
        case "message":
            texts = [part.get("text") or part.get("refusal") for part in _message_parts(item)]
            yield from ({"type": "text", "text": text} for text in texts if text)
        case "function_call":
            arguments = _tool_input(item["arguments"])
            yield {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": arguments}
        case kind:
            raise NotImplementedError(f"an output item of type {kind!r} has no form in the Anthropic Messages API")


def _message_parts(item: Json) -> list[Json]:
    content = item["content"]
    return [{"text": content}] if isinstance(content, str) else content


def _thinking(item: Json) -> Iterator[dict[str, Any]]:
    """One block per thought; the signature closes the last. What cannot be read is a redacted block."""
    thoughts = [thought["text"] for thought in item["summary"] or item.get("content") or []]
    encrypted = item.get("encrypted_content") or ""
    for number, thought in enumerate(thoughts, 1):
        signature = encrypted if number == len(thoughts) else ""
        yield {"type": "thinking", "thinking": thought, "signature": signature}
    if encrypted and not thoughts:
        yield {"type": "redacted_thinking", "data": encrypted}


def _tool_input(arguments: str) -> dict[str, Any]:
    """The arguments as an object. What the model wrote wrongly is kept as it is, so that the tool refuses it and the
    model, whose history then holds its own words, can mend it.
    """
    try:
        parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {RAW_ARGUMENTS: arguments}
    return parsed if isinstance(parsed, dict) else {RAW_ARGUMENTS: arguments}


def _ending(body: Json, content: list[dict[str, Any]]) -> dict[str, Any]:
    stopped_by = body.get("stop_sequence")
    return {"stop_reason": _stop_reason(body, content), "stop_sequence": stopped_by}


def _stop_reason(body: Json, content: list[dict[str, Any]]) -> str:
    details = body.get("incomplete_details") or {}
    if details.get("reason") == "max_output_tokens":
        return "max_tokens"
    if details.get("reason") == "content_filter" or _refused(body):
        return "refusal"
    if any(block["type"] == "tool_use" for block in content):
        return "tool_use"
    return "stop_sequence" if body.get("stop_sequence") else "end_turn"


def _refused(body: Json) -> bool:
    messages = [item for item in body["output"] if item["type"] == "message"]
    return any("refusal" in part for item in messages for part in _message_parts(item))


def _usage(usage: Json | None) -> dict[str, int]:
    """Anthropic counts cached input tokens apart. Its schema has no word for "unknown": that is 0 here."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens")
    counts = {"input_tokens": usage["input_tokens"] - (cached or 0), "output_tokens": usage["output_tokens"]}
    return counts if cached is None else {**counts, "cache_read_input_tokens": cached}
