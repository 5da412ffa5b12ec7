# SPDX-License-Identifier: Apache-2.0
"""A finished chat completion, replayed as the chunks that a streaming client expects.

The reply is complete before the first chunk goes out, so every piece of it (reasoning, text, refusal, one tool call)
is one chunk.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from nemo_gym._wire import sse
from nemo_gym._wire.convert_plain import plain

REASONING_KEYS = ("reasoning_content", "reasoning")
_CHUNK_KEYS = {"id", "created", "model", "system_fingerprint", "service_tier"}
_STREAMED_MESSAGE_KEYS = {"role", "content", "refusal", "tool_calls", *REASONING_KEYS}


def chat_chunks(completion: BaseModel | Mapping[str, Any], include_usage: bool = False) -> Iterator[bytes]:
    """The stream of `completion`: `include_usage` is the request's `stream_options.include_usage`."""
    body = plain(completion)
    known = {key: value for key, value in body.items() if key in _CHUNK_KEYS and value is not None}
    head = {**known, "object": "chat.completion.chunk", **({"usage": None} if include_usage else {})}
    # What a server adds to a completion (vLLM: `prompt_token_ids`) rides on the first chunk.
    extras = _without(body, {*_CHUNK_KEYS, "object", "choices", "usage"})
    for choice in body["choices"]:
        for piece in _choice_pieces(choice):
            yield sse.frame({**extras, **head, "choices": [piece]})
            extras = {}
    if include_usage:
        yield sse.frame({**head, "choices": [], "usage": body.get("usage")})
    yield sse.DONE


def chat_failed(message: str, code: str = "server_error") -> Iterator[bytes]:
    """The stream of a reply that could not be had: SDK clients raise an `APIError` with `message`."""
    yield sse.frame({"error": {"message": message, "type": code, "param": None, "code": code}})
    yield sse.DONE


def _choice_pieces(choice: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    index, message = choice["index"], choice["message"]
    for delta in _deltas(message):
        piece = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        yield piece
    ending = _without(message, _STREAMED_MESSAGE_KEYS)
    extras = _without(choice, {"index", "message", "logprobs", "finish_reason"})
    logprobs, finish_reason = choice.get("logprobs"), choice.get("finish_reason")
    yield {**extras, "index": index, "delta": ending, "logprobs": logprobs, "finish_reason": finish_reason}


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant"}
    if reasoning := {key: message[key] for key in REASONING_KEYS if message.get(key)}:
        yield reasoning
    for key in ("content", "refusal"):
        if message.get(key) is not None:
            yield {key: message[key]}
    for index, call in enumerate(message.get("tool_calls") or []):
        yield {"tool_calls": [{"index": index, **call}]}


def _without(mapping: Mapping[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys and value is not None}
