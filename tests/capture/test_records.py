# SPDX-License-Identifier: Apache-2.0
"""A captured call is told from its exchange, in every dialect; a strange body tells nothing."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._capture.records import ModelCallRecord, build_model_call_record

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


@settings(max_examples=80, deadline=None)
@given(body=st.dictionaries(st.sampled_from(["output", "choices", "content", "usage", "status", "id"]), json_values))
def test_no_shape_of_response_is_an_error(body: Any):
    assert build_model_call_record({"response": body}, call_index=0).response == body
