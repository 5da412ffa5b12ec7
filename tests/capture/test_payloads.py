# SPDX-License-Identifier: Apache-2.0
"""Usage and token ids are found in every dialect, plain or streamed, and a strange body holds nothing."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._capture.payloads import item_keys, stream_failed, token_bundles, usage_of

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["usage", "output", "choices", "message", "response", "input_tokens", "total_tokens", "type"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def sse(*events: dict[str, Any]) -> str:
    return "".join(f"data: {orjson.dumps(event).decode()}\n\n" for event in events) + "data: [DONE]\n\n"


RESPONSES_USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}
CHAT_USAGE = {
    "prompt_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens": 5,
    "completion_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}
ALL = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "cached_tokens": 4, "reasoning_tokens": 2}


@pytest.mark.parametrize(
    ("response", "usage"),
    [
        ({"usage": RESPONSES_USAGE}, ALL),
        ({"usage": CHAT_USAGE}, ALL),
        (
            {"usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 4}},
            {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "cached_tokens": 4},
        ),
        (
            sse({"type": "response.created"}, {"type": "response.completed", "response": {"usage": RESPONSES_USAGE}}),
            ALL,
        ),
        (sse({"choices": [], "usage": None}, {"choices": [], "usage": CHAT_USAGE}), ALL),
        (
            sse(
                {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}},
                {"type": "message_delta", "usage": {"output_tokens": 5}},
            ),
            {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        ),
        ({"usage": None}, {}),
        ({"usage": {"input_tokens": None, "input_tokens_details": None}}, {}),
        (None, {}),
        ("plain text", {}),
    ],
)
def test_usage_is_told_by_one_set_of_names(response: Any, usage: dict[str, int]):
    assert usage_of(response) == usage


TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}


def test_token_ids_are_found_on_output_items():
    response = {"output": [{"type": "reasoning"}, {"type": "message", "id": "m", **TOKENS, "routed_experts": "abc"}]}
    expected = {"item_index": 1, "item_keys": ["id:m"], **TOKENS, "routed_experts": "abc"}
    assert token_bundles(response) == [expected]


def test_token_ids_are_found_on_chat_messages():
    message = {"role": "assistant", "tool_calls": [{"id": "call_1"}, {"id": "call_2"}], **TOKENS}
    (bundle,) = token_bundles({"choices": [{"message": message}]})
    assert bundle == {"item_index": 0, "item_keys": ["id:call_2"], **TOKENS}


def test_the_same_text_is_recognised_as_a_chat_message_and_as_an_output_item():
    chat = {"role": "assistant", "content": "four\n"}
    item = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "four"}]}
    other = {"type": "message", "content": [{"type": "output_text", "text": "five"}]}
    assert item_keys(chat) & item_keys(item)
    assert not item_keys(chat) & item_keys(other)
    assert item_keys({"type": "message", "content": ""}) == set()


def test_token_ids_are_found_in_a_streamed_response():
    stream = sse({"type": "response.completed", "response": {"output": [{"type": "message", **TOKENS}]}})
    assert token_bundles(stream) == [{"item_index": 0, "item_keys": [], **TOKENS}]


def test_a_bundle_that_lacks_a_field_is_no_bundle():
    assert token_bundles({"output": [{"prompt_token_ids": [1], "generation_token_ids": [2]}]}) == []


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        (sse({"type": "response.completed", "response": {"error": None}}), False),
        (sse({"type": "response.created"}, {"type": "response.failed"}), True),
        (sse({"type": "error", "error": {"type": "overloaded_error"}}), True),
        (sse({"error": {"message": "boom"}}), True),
        (sse({"choices": [], "error": None}), False),
        ("data: not json\n\n", False),
    ],
)
def test_a_stream_that_failed_after_its_200_is_recognised(text: str, failed: bool):
    assert stream_failed(text) is failed


@settings(max_examples=100, deadline=None)
@given(body=json_values, streamed=st.booleans())
def test_no_shape_of_body_is_an_error(body: Any, streamed: bool):
    response = f"data: {orjson.dumps(body).decode()}\n" if streamed else body
    assert all(isinstance(count, int) for count in usage_of(response).values())
    token_bundles(response)
