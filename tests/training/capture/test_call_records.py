# SPDX-License-Identifier: Apache-2.0
"""One call as it is told from a captured exchange: its tokens, its items, and numbers over the calls of a rollout."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._training.capture.call_records import (
    ModelCallRecord,
    aggregate_model_call_records,
    build_model_call_record,
    extract_token_stats,
    find_dialect,
    identify_item,
    list_answer_items,
    read_cached_tokens,
)

MODEL_REF = {"type": "responses_api_models", "name": "policy_model"}
RESPONSES = {
    "id": "resp_1",
    "model": "m",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "output": [
        {"type": "reasoning", "summary": [{"text": "first"}], "content": [{"text": "second"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "door"}'},
        {"type": "function_call", "call_id": "c2", "name": "go", "arguments": "{not json"},
        {"type": "message", "content": []},
    ],
    "usage": {"input_tokens": 4, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1},
}
CHAT = {
    "id": "resp_1",
    "model": "m",
    "choices": [
        {
            "finish_reason": "tool_calls",
            "message": {
                "reasoning_content": "first\nsecond",
                "tool_calls": [
                    {"id": "c1", "function": {"name": "look", "arguments": '{"at": "door"}'}},
                    {"id": "c2", "function": {"name": "go", "arguments": "{not json"}},
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens": 1},
}
MESSAGES = {
    "id": "resp_1",
    "model": "m",
    "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": "first"},
        {"type": "thinking", "thinking": "second"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "door"}},
        {"type": "tool_use", "id": "c2", "name": "go", "input": "{not json"},
    ],
    "usage": {"input_tokens": 4, "output_tokens": 1, "cache_read_input_tokens": 0},
}


@pytest.mark.parametrize(
    ("dialect", "response", "status", "reason"),
    [
        ("responses", RESPONSES, "incomplete", "max_output_tokens"),
        ("chat", CHAT, None, "tool_calls"),
        ("messages", MESSAGES, None, "tool_use"),
    ],
)
def test_a_call_tells_the_same_in_every_dialect(dialect: str, response: Any, status: str | None, reason: str):
    exchange = {
        "model_call_id": "a",
        "dialect": dialect,
        "model_ref": MODEL_REF,
        "started_at": 1.0,
        "completed_at": 2.0,
        "latency_ms": 1000.0,
        "latency_ttft_ms": 10.0,
        "status_code": 200,
        "error_category": None,
        "request": {"input": "x"},
        "response": response,
    }
    record = build_model_call_record(exchange, call_index=3)
    assert record.model_dump() == {
        "model_call_id": "a",
        "response_id": "resp_1",
        "call_index": 3,
        "model_ref": MODEL_REF,
        "model": "m",
        "dialect": dialect,
        "status_code": 200,
        "response_status": status,
        "finish_reason": reason,
        "started_at": 1.0,
        "completed_at": 2.0,
        "tokens_in": 4,
        "tokens_out": 1,
        "tokens_reasoning": None,
        "tokens_total": 5,
        "request": {"input": "x"},
        "response": response,
        "request_raw": None,
        "response_raw": None,
        "tool_calls": [
            {"call_id": "c1", "name": "look", "arguments": {"at": "door"}},
            {"call_id": "c2", "name": "go", "arguments": {"_raw": "{not json"}},
        ],
        "reasoning_content": "first\nsecond",
        "cache_hit": False,
        "cached_tokens": 0,
        "cache_creation_tokens": None,
        "error_category": None,
        "latency_total_ms": 1000.0,
        "latency_ttft_ms": 10.0,
    }


def test_a_call_without_a_response_tells_what_is_known():
    exchange = {"request": {"model": "asked"}, "response": None, "error_category": "timeout"}
    record = build_model_call_record(exchange, call_index=0)
    assert (record.model, record.error_category, record.cache_hit, record.tool_calls) == ("asked", "timeout", None, [])
    assert ModelCallRecord(call_index=1).model_dump(exclude_none=True) == {"call_index": 1, "tool_calls": []}


@pytest.mark.parametrize(("given_", "parsed"), [("", {}), (None, {}), ("[1]", {"_raw": "[1]"}), ('{"a": 1}', {"a": 1})])
def test_arguments_are_an_object(given_: str | None, parsed: dict[str, Any]):
    output = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": given_}]
    record = build_model_call_record({"response": {"output": output}}, call_index=0)
    assert record.tool_calls[0]["arguments"] == parsed


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["output", "choices", "message", "content", "usage", "type", "id"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(body=st.dictionaries(st.sampled_from(["output", "choices", "content", "usage", "status", "id"]), json_values))
def test_no_shape_of_response_is_an_error(body: Any):
    assert build_model_call_record({"response": body}, call_index=0).response == body


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
        (
            {"output_tokens": 5, "cache_read_input_tokens": 400, "cache_creation_input_tokens": 100},
            (500, 5, None, 505, 100),
            400,
        ),
        ({"output_tokens": 5, "cache_read_input_tokens": 0}, (None, 5, None, None, None), 0),
        ({}, (None,) * 5, None),
        (None, (None,) * 5, None),
    ],
)
def test_every_dialect_tells_its_tokens(usage: Any, stats: tuple[int | None, ...], cached: int | None):
    assert extract_token_stats(usage) == dict(zip(NAMES, stats, strict=True))
    assert read_cached_tokens(usage) == cached


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*RESPONSES, *CHAT, *ANTHROPIC]), st.none() | st.integers() | st.text() | st.lists(st.none())
    )
)
def test_no_shape_of_usage_is_an_error_and_no_count_is_negative(usage: dict[str, Any]):
    counts = [*extract_token_stats(usage).values(), read_cached_tokens(usage)]
    assert all(count is None or count >= 0 for count in counts)


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
    assert identify_item(chat) & identify_item(item)
    assert not identify_item(chat) & identify_item(other)
    assert identify_item({"type": "message", "content": ""}) == set()


@settings(max_examples=50, deadline=None)
@given(body=json_values)
def test_no_shape_of_body_is_an_error(body: Any):
    assert all(isinstance(item, dict) for item in list_answer_items(body))


def test_tokens_and_latencies_add_up_and_a_number_that_no_call_told_is_none():
    calls = [
        ModelCallRecord(call_index=0, tokens_in=3, tokens_out=1, tokens_total=4, latency_total_ms=100.5),
        ModelCallRecord(call_index=1, tokens_in=5, cached_tokens=0, latency_total_ms=300.0),
        ModelCallRecord(call_index=2, error_category="rate_limit"),
    ]
    assert aggregate_model_call_records(calls) == {
        "num_calls": 3,
        "tokens_in": 8,
        "tokens_out": 1,
        "tokens_reasoning": None,
        "tokens_total": 4,
        "cached_tokens": 0,
        "latency_total_ms": 400.5,
    }


def test_no_calls_give_no_invented_numbers():
    metrics = aggregate_model_call_records([])
    assert metrics.pop("num_calls") == 0
    assert set(metrics.values()) == {None}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.integers(0, 1000), max_size=8))
def test_calls_that_tell_nothing_do_not_change_a_sum(counts: list[int | None]):
    calls = [ModelCallRecord(call_index=place, tokens_in=count) for place, count in enumerate(counts)]
    known = [count for count in counts if count is not None]
    assert aggregate_model_call_records(calls)["tokens_in"] == (sum(known) if known else None)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/chat/completions", "chat"),
        ("/sessions/rollout-1/v1/messages", "messages"),
        ("/sessions/rollout-1", None),
        ("/v1/models", None),
    ],
)
def test_a_call_below_a_session_is_in_the_dialect_of_its_endpoint(path, dialect):
    assert find_dialect(path) == dialect
