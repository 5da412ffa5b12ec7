# SPDX-License-Identifier: Apache-2.0
"""How many tokens a model says a call took, in each of the three dialects, by one set of names."""

from collections.abc import Mapping
from typing import Any

from nemo_gym._util.json_shapes import as_mapping

_INPUT_DETAILS = ("input_tokens_details", "prompt_tokens_details")
_OUTPUT_DETAILS = ("output_tokens_details", "completion_tokens_details")


def extract_token_stats(usage: Any) -> dict[str, int | None]:
    """Return the token counts of a `usage` object; None for what it does not tell.

    Anthropic counts what it reads from and writes to its cache apart from the input; here the input is all of it.
    """
    told = as_mapping(usage)
    tokens_in = _first_count(told, ("input_tokens", "prompt_tokens"))
    tokens_out = _first_count(told, ("output_tokens", "completion_tokens"))
    total = _first_count(told, ("total_tokens",))
    created = _first_count(told, ("cache_creation_input_tokens",))
    if tokens_in is not None and total is None and _is_anthropic(told):
        tokens_in += (_first_count(told, ("cache_read_input_tokens",)) or 0) + (created or 0)
    if total is None and tokens_in is not None and tokens_out is not None:
        total = tokens_in + tokens_out
    reasoning_names = ("reasoning_tokens", "reasoning_output_tokens")
    return {
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "tokens_reasoning": _first_detail(told, _OUTPUT_DETAILS, reasoning_names, ("reasoning_output_tokens",)),
        "tokens_total": total,
        "cache_creation_tokens": created,
    }


def cached_tokens_of(usage: Any) -> int | None:
    """Return how much of the input a model read from its cache."""
    nested, top = ("cached_tokens", "cached_input_tokens"), ("cache_read_input_tokens", "cached_input_tokens")
    return _first_detail(as_mapping(usage), _INPUT_DETAILS, nested, top)


def _is_anthropic(usage: Mapping[str, Any]) -> bool:
    """Whether the input is told without the cache: OpenAI's two dialects include it, and say so in details."""
    return "input_tokens" in usage and not any(isinstance(usage.get(name), dict) for name in _INPUT_DETAILS)


def _first_detail(
    usage: Mapping[str, Any], groups: tuple[str, ...], nested: tuple[str, ...], top: tuple[str, ...]
) -> int | None:
    for group in groups:
        if (count := _first_count(as_mapping(usage.get(group)), nested)) is not None:
            return count
    return _first_count(usage, top)


def _first_count(values: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((values[name] for name in names if type(values.get(name)) is int and values[name] >= 0), None)
