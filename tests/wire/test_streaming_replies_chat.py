# SPDX-License-Identifier: Apache-2.0
"""The chat stream, judged by the official client."""

from typing import Any

import pytest
from hypothesis import given, settings
from openai import APIError, AsyncOpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from nemo_gym._wire.chat_completion import NeMoGymChatCompletion
from nemo_gym._wire.streaming_replies import stream_completion, stream_completion_failure
from tests.wire import convert_strategies as cs
from tests.wire.sse_server import parse_events, streaming

USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
]
MESSAGE = {"role": "assistant", "content": "hello", "reasoning_content": "hmm", "tool_calls": CALLS}


def chat(message: dict[str, Any] = MESSAGE, finish_reason: str = "tool_calls", **fields: Any) -> NeMoGymChatCompletion:
    return NeMoGymChatCompletion.model_validate(cs.completion(message, finish_reason, usage=USAGE, **fields))


def chunks(frames: Any) -> list[dict[str, Any]]:
    *parsed, done = parse_events(b"".join(frames))
    assert done.data == "[DONE]"
    return [event.json() for event in parsed]


def assembled(frames: Any) -> dict[str, Any]:
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks(frames):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return state.current_completion_snapshot.model_dump()


async def test_the_official_client_assembles_the_completion_that_was_sent():
    frames = stream_completion(chat(), include_usage=True)
    async with streaming(frames) as url, AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        async with client.chat.completions.stream(messages=[], model="m") as stream:
            final = await stream.get_final_completion()
    message = final.choices[0].message
    assert (message.content, message.reasoning_content) == ("hello", "hmm")
    assert [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("c1", "f", '{"a":1}'),
        ("c2", "g", ""),
    ]
    assert (final.choices[0].finish_reason, final.usage.total_tokens) == ("tool_calls", 8)


def test_chunks_come_in_the_documented_order():
    sent = chunks(stream_completion(chat(), include_usage=True))
    deltas = [list(chunk["choices"][0]["delta"]) for chunk in sent[:-1]]
    assert deltas == [["role"], ["reasoning_content"], ["content"], ["tool_calls"], ["tool_calls"], []]
    assert [chunk["choices"][0]["finish_reason"] for chunk in sent[:-1]] == [None] * 5 + ["tool_calls"]
    assert sent[-1]["choices"] == []
    assert sent[-1]["usage"]["prompt_tokens"] == 5
    assert all(chunk["usage"] is None for chunk in sent[:-1])


def test_usage_is_sent_only_when_asked_for():
    assert not any("usage" in chunk for chunk in chunks(stream_completion(chat())))


@settings(max_examples=50, deadline=None)
@given(cs.chat_messages)
def test_nothing_of_a_message_is_lost(message):
    received = assembled(stream_completion(chat(message, "stop")))["choices"][0]
    assert received["finish_reason"] == "stop"
    for field in ("content", "refusal"):
        assert received["message"][field] == message[field]
    assert received["message"].get("reasoning_content") == message.get("reasoning_content")
    calls = received["message"]["tool_calls"] or []
    assert [(call["id"], call["function"]["arguments"]) for call in calls] == [
        (call["id"], call["function"]["arguments"]) for call in message["tool_calls"] or []
    ]


def test_token_ids_log_probs_and_the_endpoints_own_fields_are_sent_once():
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.1]}
    completion = cs.completion({**MESSAGE, **tokens}, kv_transfer="x")
    logprobs = {"content": [{"token": "a", "logprob": -0.1, "bytes": None, "top_logprobs": []}], "refusal": None}
    completion["choices"][0] |= {"logprobs": logprobs, "stop_reason": "END"}
    sent = chunks(stream_completion(NeMoGymChatCompletion.model_validate(completion)))
    ending = sent[-1]["choices"][0]
    assert ending["delta"] == tokens
    assert (ending["stop_reason"], ending["logprobs"]["content"][0]["token"]) == ("END", "a")
    assert [chunk.get("kv_transfer") for chunk in sent] == ["x"] + [None] * (len(sent) - 1)


async def test_a_failure_raises_in_the_official_client():
    async with (
        streaming(stream_completion_failure("upstream is down")) as url,
        AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(messages=[], model="m", stream=True)
        with pytest.raises(APIError, match="upstream is down"):
            [chunk async for chunk in stream]
