# SPDX-License-Identifier: Apache-2.0
"""Streamed Chat Completions: strip the stream options from a request, and replay a completion as chunks."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from nemo_gym._wire.streaming import stream_completion


def sanitize_streaming_chat_body(body: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return `body` without `stream` and `stream_options`, and whether the client wants a usage chunk."""
    options = body.get("stream_options")
    include_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}, include_usage


def synthesize_chat_completion_sse(
    completion: BaseModel | Mapping[str, Any], include_usage: bool = False
) -> Iterator[str]:
    """Replay `completion` as chunks, one per piece of text, ending with `[DONE]`."""
    for chunk in stream_completion(completion, include_usage):
        yield chunk.decode()
