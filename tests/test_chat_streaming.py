# SPDX-License-Identifier: Apache-2.0
"""Streamed Chat Completions, as servers use them through the public module."""

import json
from typing import Any

import pytest

from nemo_gym.chat_streaming import sanitize_streaming_chat_body, synthesize_chat_completion_sse
from nemo_gym.openai_utils import NeMoGymChatCompletion
from tests.wire.convert_strategies import completion

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGE = {"role": "assistant", "reasoning_content": "hm", "content": "hello", "tool_calls": [CALL]}


@pytest.mark.parametrize(
    ("options", "include_usage"),
    [
        ({"stream_options": {"include_usage": True}}, True),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {}}, False),
        ({"stream_options": None}, False),
        ({"stream_options": 7}, False),
        ({}, False),
    ],
)
def test_a_body_loses_what_is_about_its_stream(options: dict[str, Any], include_usage: bool):
    body = {"messages": [], "stream": True, **options}
    assert sanitize_streaming_chat_body(body) == ({"messages": []}, include_usage)
    assert body == {"messages": [], "stream": True, **options}


@pytest.mark.parametrize("as_object", [True, False])
def test_a_completion_is_sent_piece_by_piece(as_object: bool):
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    sent: Any = completion(MESSAGE, "tool_calls", usage=usage)
    if as_object:
        sent = NeMoGymChatCompletion.model_validate(sent)
    *pieces, last = synthesize_chat_completion_sse(sent, include_usage=True)
    assert last == "data: [DONE]\n\n"
    *chunks, counted = [json.loads(piece.removeprefix("data: ")) for piece in pieces]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [list(delta) for delta in deltas] == [["role"], ["reasoning_content"], ["content"], ["tool_calls"], []]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert (counted["choices"], counted["usage"]["total_tokens"]) == ([], 8)


def test_usage_is_not_sent_unless_asked_for():
    assert '"usage"' not in "".join(synthesize_chat_completion_sse(completion(MESSAGE, "stop")))
