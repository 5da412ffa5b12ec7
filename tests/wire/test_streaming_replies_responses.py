# SPDX-License-Identifier: Apache-2.0
"""The Responses stream, judged by the official client and its event types."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from nemo_gym._wire.response import NeMoGymResponse
from nemo_gym._wire.streaming_replies import stream_response, stream_response_failure
from tests.wire import convert_strategies as cs
from tests.wire.sse_server import parse_events, streaming

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
    async with streaming(frames) as url, AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        return [event async for event in await client.responses.create(input="hi", model="m", stream=True)]


async def test_the_official_client_assembles_the_response_that_was_sent():
    frames = stream_response(response())
    async with streaming(frames) as url, AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
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


@settings(max_examples=50, deadline=None)
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


@settings(max_examples=50, deadline=None)
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
