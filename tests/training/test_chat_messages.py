# SPDX-License-Identifier: Apache-2.0
"""The conversation of a row is told in chat messages, each of the model's tied to the turn that wrote it."""

import pytest

from nemo_gym._training.chat_messages import NotExpressible, read_conversation, read_given
from nemo_gym._training.record import TrainableRollout
from tests.training.rollout_rows import make_row


def test_a_turn_with_thoughts_and_a_call_is_one_message():
    row = make_row()
    conversation = read_conversation(row, TrainableRollout.from_row(row).turns)
    assert [message["role"] for message in conversation.given] == ["system", "user"]
    assert conversation.said == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Let me look.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": '{"celsius": 21}', "name": "get_weather"},
        {"role": "assistant", "content": "It is warm."},
    ]
    assert conversation.turns == [0, None, 1]
    assert conversation.tools[0]["function"]["name"] == "get_weather"


def test_arguments_are_parsed_for_templates_unless_the_model_wrote_no_json():
    row = make_row()
    [call] = read_conversation(row, parse_arguments=True).said[0]["tool_calls"]
    assert call["function"]["arguments"] == {"city": "Bern"}
    row["response"]["output"][1]["arguments"] = '{"city": '
    [call] = read_conversation(row, parse_arguments=True).said[0]["tool_calls"]
    assert call["function"]["arguments"] == '{"city": '


def test_without_tokens_no_message_has_a_turn():
    assert read_conversation(make_row(with_tokens=False)).turns == [None, None, None]


def test_instructions_and_a_plain_text_are_a_system_and_a_user_message():
    row = {"responses_create_params": {"instructions": "Be brief.", "input": "Hello"}}
    assert read_given(row) == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


def test_parts_of_text_become_text_and_pictures_stay_parts():
    content = [{"type": "input_text", "text": "What is "}, {"type": "input_text", "text": "this?"}]
    row = {"responses_create_params": {"input": [{"role": "user", "content": content}]}}
    assert read_given(row) == [{"role": "user", "content": "What is this?"}]
    content.append({"type": "input_image", "image_url": "data:image/png;base64,AAAA"})
    [message] = read_given(row)
    assert [part["type"] for part in message["content"]] == ["text", "text", "image_url"]


def test_two_model_calls_in_a_row_stay_two_messages():
    row = make_row()
    del row["response"]["output"][2]
    conversation = read_conversation(row, TrainableRollout.from_row(row).turns)
    assert conversation.turns == [0, 1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"responses_create_params": {}}, "no conversation"),
        ({"response": {"output": []}}, "no conversation"),
        ({"response": {"output": [{"type": "web_search_call"}]}}, "web_search_call"),
        ({"response": {"output": [{"type": "message"}]}}, "without a role"),
        ({"responses_create_params": {"input": "x", "tools": [{"type": "web_search"}]}}, "a tool of type"),
        ({"responses_create_params": {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}}, "part"),
    ],
)
def test_what_chat_has_no_form_for_is_named(change, reason):
    with pytest.raises(NotExpressible, match=reason):
        read_conversation({**make_row(), **change})
