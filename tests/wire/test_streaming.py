# SPDX-License-Identifier: Apache-2.0
"""The streams of all three dialects, judged by the official clients and their event types."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from anthropic import APIStatusError, AsyncAnthropic
from hypothesis import given, settings
from openai import APIError, AsyncOpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from nemo_gym._wire.schema.replies import NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym._wire.streaming import (
    stream_completion,
    stream_completion_failure,
    stream_message,
    stream_message_failure,
    stream_response,
    stream_response_failure,
)
from nemo_gym.anthropic_converter import response_to_anthropic_message
from tests.wire import convert_strategies as cs
from tests.wire.sse_server import parse_events, streaming

quick = settings(max_examples=25, deadline=None)


@asynccontextmanager
async def openai_client(frames: Iterable[bytes]) -> AsyncIterator[AsyncOpenAI]:
    """The official client of an endpoint that streams `frames`."""
    async with streaming(frames) as url, AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        yield client


# --- Responses -------------------------------------------------------------------------------------------------------

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.1]}
OUTPUT = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hmm"}]},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "hello", "annotations": []},
            {"type": "refusal", "refusal": "no more"},
        ],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"a":1}', **TOKENS},
]
stream_event: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def response(output: list[dict[str, Any]] = OUTPUT, **fields: Any) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate(cs.response(output, **fields))


def events(frames: Any) -> list[dict[str, Any]]:
    return [event.json() for event in parse_events(b"".join(frames))]


async def received(frames: Any) -> list[Any]:
    async with openai_client(frames) as client:
        return [event async for event in await client.responses.create(input="hi", model="m", stream=True)]


async def test_the_official_client_assembles_the_response_that_was_sent():
    frames = stream_response(response())
    async with openai_client(frames) as client:
        async with client.responses.stream(input="hi", model="m") as stream:
            final = await stream.get_final_response()
    assert final.output_text == "hello"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output[2].arguments == '{"a":1}'
    assert final.output[2].generation_token_ids == [3]


async def test_events_come_in_the_official_order():
    kinds = [event.type.removeprefix("response.") for event in await received(stream_response(response()))]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


@quick
@given(cs.assistant_turns(with_tokens=True))
def test_every_event_is_numbered_named_and_officially_valid(output):
    sent = response(output)
    parsed = parse_events(b"".join(stream_response(sent)))
    for number, event in enumerate(parsed):
        stream_event.validate_python(event.json())
        assert (event.name, number) == (event.json()["type"], event.json()["sequence_number"])
    assert NeMoGymResponse.model_validate(parsed[-1].json()["response"]) == sent
    done = [event.json()["item"] for event in parsed if event.name == "response.output_item.done"]
    assert done == parsed[-1].json()["response"]["output"]


@quick
@given(cs.assistant_turns())
def test_deltas_add_up_to_the_items(output):
    sent = events(stream_response(response(output)))
    text = "".join(event["delta"] for event in sent if event["type"].endswith(".delta"))
    parts = [part for item in output for part in (*item.get("summary", []), *item.get("content", []), item)]
    assert text == "".join(part.get("text") or part.get("refusal") or part.get("arguments") or "" for part in parts)


def test_token_ids_are_sent_with_the_finished_item_only():
    sent = events(stream_response(response()))
    carriers = [event["type"] for event in sent if b"prompt_token_ids" in orjson.dumps(event)]
    assert carriers == ["response.output_item.done", "response.completed"]


def test_a_response_that_was_cut_ends_as_incomplete():
    cut = response(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    last = events(stream_response(cut))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_hosted_items_are_announced_and_done():
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
    kinds = [event["type"] for event in events(stream_response(response([item])))]
    assert kinds[2:-1] == ["response.output_item.added", "response.output_item.done"]


def test_tool_names_are_given_back_as_the_client_knows_them():
    call = {"type": "function_call", "call_id": "c", "name": "ns__f", "arguments": "{}"}
    sent = events(stream_response(response([call]), {"ns__f": ("ns", "f")}))
    items = [event["item"] for event in sent if "item" in event] + sent[-1]["response"]["output"]
    assert [(item["namespace"], item["name"]) for item in items] == [("ns", "f")] * 3


async def test_a_failure_is_a_well_formed_stream_that_says_why():
    created, failed = await received(
        stream_response_failure("upstream is down", response_id="resp_1", created_at=1, model="m")
    )
    assert (created.type, failed.type) == ("response.created", "response.failed")
    assert (failed.response.status, failed.response.error.message) == ("failed", "upstream is down")
    Response.model_validate(failed.response.model_dump())


@pytest.mark.parametrize("content", ["text", []])
def test_a_message_of_any_shape_can_be_sent(content):
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
    assert events(stream_response(response([item])))[-1]["type"] == "response.completed"


# --- Chat Completions ------------------------------------------------------------------------------------------------

USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
]
CHAT_MESSAGE = {"role": "assistant", "content": "hello", "reasoning_content": "hmm", "tool_calls": CALLS}


def chat(
    message: dict[str, Any] = CHAT_MESSAGE, finish_reason: str = "tool_calls", **fields: Any
) -> NeMoGymChatCompletion:
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
    async with openai_client(frames) as client:
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


@quick
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
    completion = cs.completion({**CHAT_MESSAGE, **tokens}, kv_transfer="x")
    logprobs = {"content": [{"token": "a", "logprob": -0.1, "bytes": None, "top_logprobs": []}], "refusal": None}
    completion["choices"][0] |= {"logprobs": logprobs, "stop_reason": "END"}
    sent = chunks(stream_completion(NeMoGymChatCompletion.model_validate(completion)))
    ending = sent[-1]["choices"][0]
    assert ending["delta"] == tokens
    assert (ending["stop_reason"], ending["logprobs"]["content"][0]["token"]) == ("END", "a")
    assert [chunk.get("kv_transfer") for chunk in sent] == ["x"] + [None] * (len(sent) - 1)


async def test_a_failed_completion_raises_in_the_official_client():
    async with openai_client(stream_completion_failure("upstream is down")) as client:
        stream = await client.chat.completions.create(messages=[], model="m", stream=True)
        with pytest.raises(APIError, match="upstream is down"):
            [chunk async for chunk in stream]


# --- Anthropic Messages ----------------------------------------------------------------------------------------------

ANTHROPIC_MESSAGE = {
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


def message_events(message: dict[str, Any]) -> list[dict[str, Any]]:
    parsed = parse_events(b"".join(stream_message(message)))
    assert all(event.name == event.json()["type"] for event in parsed)
    return [event.json() for event in parsed]


async def test_the_official_client_assembles_the_message_that_was_sent():
    async with (
        streaming(stream_message(ANTHROPIC_MESSAGE)) as url,
        AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client,
    ):
        async with client.messages.stream(max_tokens=9, messages=[], model="m") as stream:
            final = await stream.get_final_message()
    received = final.model_dump(exclude_none=True, include=set(ANTHROPIC_MESSAGE))
    assert {**received, "stop_sequence": None} == ANTHROPIC_MESSAGE


def test_events_of_a_message_come_in_the_official_order():
    kinds = [
        event["type"] for event in message_events({**ANTHROPIC_MESSAGE, "content": ANTHROPIC_MESSAGE["content"][:3]})
    ]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    signed = [block[0], block[1], block[1], block[2]]
    redacted = [block[0], block[2]]
    assert kinds == ["message_start", *signed, *redacted, *block, "message_delta", "message_stop"]


@quick
@given(cs.assistant_turns())
def test_deltas_add_up_to_the_blocks(output):
    message = response_to_anthropic_message(NeMoGymResponse.model_validate(cs.response(output)))
    text = "".join(
        event["delta"]["text"]
        for event in message_events(message)
        if event.get("delta", {}).get("type") == "text_delta"
    )
    assert text == "".join(block.get("text", "") for block in message["content"])


async def test_a_failed_message_raises_in_the_official_client():
    async with (
        streaming(stream_message_failure("upstream is down")) as url,
        AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client,
    ):
        stream = await client.messages.create(max_tokens=9, messages=[], model="m", stream=True)
        with pytest.raises(APIStatusError, match="upstream is down"):
            [event async for event in stream]
