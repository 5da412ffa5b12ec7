# SPDX-License-Identifier: Apache-2.0
"""Estimate the tokens of a request for models whose tokenizer is not available: one for every four bytes of text."""

from collections.abc import Mapping
from typing import Any

from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._wire.schema.wire_model import to_plain

_BYTES_PER_TOKEN = 4
_TOKENS_PER_IMAGE = 1600
"""About what Anthropic and OpenAI count for an image of a million pixels."""
_MEDIA = ("input_image", "input_file", "input_video")


def estimate_tokens(params: NeMoGymResponseCreateParamsNonStreaming) -> int:
    """Return an estimate of the tokens in the instructions, the conversation and the tools."""
    asked = to_plain(params)
    sizes = [_measure(asked.get(name)) for name in ("instructions", "input", "tools")]
    return -(-sum(sizes) // _BYTES_PER_TOKEN)


def _measure(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Mapping):
        if value.get("type") in _MEDIA:
            return _TOKENS_PER_IMAGE * _BYTES_PER_TOKEN
        return sum(_measure(part) + len(str(key)) for key, part in value.items() if part is not None)
    if isinstance(value, list):
        return sum(map(_measure, value))
    if value is None:
        return 0
    return len(str(value))
