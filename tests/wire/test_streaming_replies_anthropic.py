# SPDX-License-Identifier: Apache-2.0
"""The Anthropic stream, judged by the official client."""

from typing import Any

import pytest
from anthropic import APIStatusError, AsyncAnthropic
from hypothesis import given, settings

from nemo_gym._wire.response import NeMoGymResponse
from nemo_gym._wire.streaming_replies import stream_message, stream_message_failure
from nemo_gym.anthropic_converter import response_to_anthropic_message
from tests.wire import convert_strategies as cs
from tests.wire.sse_server import parse_events, streaming

MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "hmm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": {"b": [1, "x"]}}},
        {"type": "tool_use", "id": "c2", "name": "g", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 2},
}


def events(message: dict[str, Any]) -> list[dict[str, Any]]:
    parsed = parse_events(b"".join(stream_message(message)))
    assert all(event.name == event.json()["type"] for event in parsed)
    return [event.json() for event in parsed]


async def test_the_official_client_assembles_the_message_that_was_sent():
    async with (
        streaming(stream_message(MESSAGE)) as url,
        AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client,
    ):
        async with client.messages.stream(max_tokens=9, messages=[], model="m") as stream:
            final = await stream.get_final_message()
    received = final.model_dump(exclude_none=True, include=set(MESSAGE))
    assert {**received, "stop_sequence": None} == MESSAGE


def test_events_come_in_the_official_order():
    kinds = [event["type"] for event in events({**MESSAGE, "content": MESSAGE["content"][:3]})]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    signed = [block[0], block[1], block[1], block[2]]
    redacted = [block[0], block[2]]
    assert kinds == ["message_start", *signed, *redacted, *block, "message_delta", "message_stop"]


@settings(max_examples=50, deadline=None)
@given(cs.assistant_turns())
def test_deltas_add_up_to_the_blocks(output):
    message = response_to_anthropic_message(NeMoGymResponse.model_validate(cs.response(output)))
    text = "".join(
        event["delta"]["text"] for event in events(message) if event.get("delta", {}).get("type") == "text_delta"
    )
    assert text == "".join(block.get("text", "") for block in message["content"])


async def test_a_failure_raises_in_the_official_client():
    async with (
        streaming(stream_message_failure("upstream is down")) as url,
        AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client,
    ):
        stream = await client.messages.create(max_tokens=9, messages=[], model="m", stream=True)
        with pytest.raises(APIStatusError, match="upstream is down"):
            [event async for event in stream]
