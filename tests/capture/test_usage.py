# SPDX-License-Identifier: Apache-2.0
"""Token counts of all three dialects by one set of names."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._capture.usage import cached_tokens_of, extract_token_stats

NAMES = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cache_creation_tokens")
RESPONSES = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}
CHAT = {
    "prompt_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens": 5,
    "completion_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}
ANTHROPIC = {
    "input_tokens": 4,
    "output_tokens": 5,
    "cache_read_input_tokens": 4,
    "cache_creation_input_tokens": 2,
}


@pytest.mark.parametrize(
    ("usage", "stats", "cached"),
    [
        (RESPONSES, (10, 5, 2, 15, None), 4),
        (CHAT, (10, 5, 2, 15, None), 4),
        (ANTHROPIC, (10, 5, None, 15, 2), 4),
        # What others put beside OpenAI's counts is already part of them.
        ({**CHAT, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1}, (10, 5, 2, 15, 1), 4),
        ({**RESPONSES, "cache_read_input_tokens": 9}, (10, 5, 2, 15, None), 4),
        ({"input_tokens": 3, "output_tokens": 2, "reasoning_output_tokens": 1}, (3, 2, 1, 5, None), None),
        ({"output_tokens_details": {"reasoning_output_tokens": 7}}, (None, None, 7, None, None), None),
        ({"input_tokens": 3, "input_tokens_details": {"cached_input_tokens": 2}}, (3, None, None, None, None), 2),
        ({"prompt_tokens": 3, "cached_input_tokens": 2}, (3, None, None, None, None), 2),
        ({"input_tokens": -1, "output_tokens": True, "total_tokens": "3"}, (None,) * 5, None),
        ({"input_tokens": 1.0, "input_tokens_details": None}, (None,) * 5, None),
        ({}, (None,) * 5, None),
        (None, (None,) * 5, None),
    ],
)
def test_every_dialect_tells_its_tokens(usage: Any, stats: tuple[int | None, ...], cached: int | None):
    assert extract_token_stats(usage) == dict(zip(NAMES, stats, strict=True))
    assert cached_tokens_of(usage) == cached


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*RESPONSES, *CHAT, *ANTHROPIC]), st.none() | st.integers() | st.text() | st.lists(st.none())
    )
)
def test_no_shape_of_usage_is_an_error_and_no_count_is_negative(usage: dict[str, Any]):
    counts = [*extract_token_stats(usage).values(), cached_tokens_of(usage)]
    assert all(count is None or count >= 0 for count in counts)
