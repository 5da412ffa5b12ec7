# SPDX-License-Identifier: Apache-2.0
"""Items are found in every dialect, and a strange body holds nothing."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._capture.payloads import answer_items, item_keys

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


def test_the_same_text_is_recognised_as_a_chat_message_and_as_an_output_item():
    chat = {"role": "assistant", "content": "four\n"}
    item = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "four"}]}
    other = {"type": "message", "content": [{"type": "output_text", "text": "five"}]}
    assert item_keys(chat) & item_keys(item)
    assert not item_keys(chat) & item_keys(other)
    assert item_keys({"type": "message", "content": ""}) == set()


@settings(max_examples=100, deadline=None)
@given(body=json_values)
def test_no_shape_of_body_is_an_error(body: Any):
    assert all(isinstance(item, dict) for item in answer_items(body))
