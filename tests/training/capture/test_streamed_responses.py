# SPDX-License-Identifier: Apache-2.0
"""The response that a stream describes is put together again, in every dialect, whatever its length."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._training.capture.streamed_responses import read_stream
from nemo_gym._wire.streaming import stream_completion, stream_message, stream_response
from nemo_gym.anthropic_converter import response_to_anthropic_message
from nemo_gym.openai_utils import NeMoGymChatCompletion
from nemo_gym.testing import message, reasoning, reply, tool_call

ANSWER = reply(reasoning("hm\u2028so"), message("Two calls."), tool_call("look", {"at": "door"}), tool_call("go"))
CHAT = NeMoGymChatCompletion.model_validate(
    {
        "id": "chatcmpl_1",
        "created": 1,
        "model": "m",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "Two calls.",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "door"}'}},
                        {"id": "c2", "type": "function", "function": {"name": "go", "arguments": "{}"}},
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
)


def sse(*events: Any) -> str:
    return "".join(f"data: {orjson.dumps(event).decode()}\n\n" for event in events)


def test_a_responses_stream_is_its_last_response():
    streamed = read_stream(b"".join(stream_response(ANSWER, {})).decode(), "responses")
    assert (streamed.has_ended, streamed.has_failed, streamed.is_incomplete) == (True, False, False)
    assert streamed.response is not None
    assert [item["type"] for item in streamed.response["output"]] == [item.type for item in ANSWER.output]
    assert streamed.response["output"][0]["summary"][0]["text"] == "hm\u2028so"


def test_a_chat_stream_becomes_the_completion_it_was():
    streamed = read_stream(b"".join(stream_completion(CHAT, include_usage=True)).decode(), "chat")
    assert streamed.has_ended
    assert streamed.response is not None
    assert (streamed.response["id"], streamed.response["object"]) == ("chatcmpl_1", "chat.completion")
    assert streamed.response["usage"]["total_tokens"] == 5
    (choice,) = streamed.response["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "Two calls.")
    calls = [(call["id"], call["function"]) for call in choice["message"]["tool_calls"]]
    assert calls == [
        ("c1", {"name": "look", "arguments": '{"at": "door"}'}),
        ("c2", {"name": "go", "arguments": "{}"}),
    ]


def test_an_anthropic_stream_becomes_the_message_it_was():
    whole = response_to_anthropic_message(ANSWER, "claude")
    streamed = read_stream(b"".join(stream_message(whole)).decode(), "messages")
    assert streamed.has_ended
    assert streamed.response is not None
    assert streamed.response["stop_reason"] == whole["stop_reason"]
    assert [block["type"] for block in streamed.response["content"]] == [block["type"] for block in whole["content"]]
    assert [block.get("input") for block in streamed.response["content"] if block["type"] == "tool_use"] == [
        {"at": "door"},
        {},
    ]


def test_pieces_of_text_and_arguments_are_joined():
    deltas = [
        {"role": "assistant", "content": "It "},
        {"content": "is", "reasoning_content": "a"},
        {
            "reasoning_content": "b",
            "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a"'}}],
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}], "prompt_token_ids": [1, 2]},
    ]
    chunks = [{"id": "x", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    streamed = read_stream(sse(*chunks), "chat")
    assert streamed.response is not None
    said = streamed.response["choices"][0]["message"]
    assert (said["content"], said["reasoning_content"], said["prompt_token_ids"]) == ("It is", "ab", [1, 2])
    assert said["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert not streamed.has_ended


def test_a_stream_that_broke_off_keeps_what_was_finished():
    events = [
        {"type": "response.created", "response": {"id": "r", "output": []}},
        {"type": "response.output_item.done", "item": {"type": "message", "id": "m"}},
    ]
    streamed = read_stream(sse(*events), "responses")
    assert (streamed.response, streamed.has_ended) == ({"id": "r", "output": [{"type": "message", "id": "m"}]}, False)


@pytest.mark.parametrize(
    ("dialect", "text", "ended", "failed", "incomplete"),
    [
        ("responses", sse({"type": "response.failed", "response": {"id": "r"}}), True, True, False),
        ("responses", sse({"type": "response.incomplete", "response": {"id": "r"}}), True, False, True),
        ("responses", sse({"type": "error", "message": "no"}), False, True, False),
        ("responses", sse({"type": "response.created", "response": {}}), False, False, False),
        ("messages", sse({"type": "error", "error": {"type": "overloaded_error"}}), False, True, False),
        ("messages", sse({"type": "message_start", "message": {}}), False, False, False),
        ("chat", sse({"error": {"message": "boom"}}), False, True, False),
        ("chat", sse({"choices": []}) + "data: [DONE]\n\n", True, False, False),
        ("chat", sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}), True, False, False),
        ("chat", "data: not json\r\n\r\n", False, False, False),
        ("chat", "", False, False, False),
    ],
)
def test_how_a_stream_ended_is_told(dialect: str, text: str, ended: bool, failed: bool, incomplete: bool):
    streamed = read_stream(text, dialect)
    assert (streamed.has_ended, streamed.has_failed, streamed.is_incomplete) == (ended, failed, incomplete)


json_values = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["type", "index", "delta", "choices", "message", "content_block", "response", "usage", "tool_calls"]
            ),
            inner | st.sampled_from(["message_start", "content_block_start", "content_block_delta", "message_delta"]),
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=80, deadline=None)
@given(events=st.lists(json_values, max_size=4), dialect=st.sampled_from(["responses", "chat", "messages"]))
def test_no_shape_of_event_is_an_error(events: list[Any], dialect: str):
    response = read_stream(sse(*events), dialect).response
    assert response is None or isinstance(response, dict)
