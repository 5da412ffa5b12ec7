# SPDX-License-Identifier: Apache-2.0
"""Streamed Responses requests and replies, as servers use them through the public module."""

import json
from collections.abc import Iterable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.responses_streaming import (
    flatten_namespace_tools,
    sanitize_streaming_responses_body,
    synthesize_responses_failure_sse,
    synthesize_responses_sse,
    validate_streaming_responses_params,
)
from nemo_gym.testing import reply, tool_call
from tests.wire import convert_strategies as cs

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
SHELL = {"command": ["ls"], "env": {}, "type": "exec"}
HOSTED: list[dict[str, Any]] = [
    {"type": "mcp_call", "name": "f", "arguments": "{}"},
    {"type": "mcp_list_tools"},
    {"type": "mcp_approval_request", "name": "f", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    {"type": "file_search_call", "id": "i", "queries": [], "status": "searching"},
    {"type": "web_search_call", "id": "i", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "computer_call", "id": "i", "call_id": "c", "action": {"type": "wait"}, "pending_safety_checks": []},
    {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
    {"type": "image_generation_call", "id": "i", "status": "completed"},
    {"type": "code_interpreter_call", "id": "i", "container_id": "c", "status": "completed"},
    {"type": "local_shell_call", "id": "i", "call_id": "c", "action": SHELL, "status": "completed"},
    {"type": "local_shell_call_output", "id": "i", "output": "x"},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
]
HOSTED[6]["status"] = "completed"


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False, **fields}


def prepare(raw: dict[str, Any]) -> dict[str, Any]:
    """The sanitized body, which fits the schema."""
    params, _ = sanitize_streaming_responses_body(raw)
    NeMoGymResponseCreateParamsNonStreaming.model_validate(params)
    return params


def events(stream: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    pieces = list(stream)
    assert all(type(piece) is str and piece.endswith("\n\n") for piece in pieces)
    named = [piece.removeprefix("event: ").split("\ndata: ") for piece in pieces]
    return [(name, json.loads(data)) for name, data in named]


def test_tools_of_a_namespace_get_joined_names():
    web, read = {"type": "web_search"}, function("read")
    assert flatten_namespace_tools([web, {"type": "namespace", "name": "files", "tools": [read]}, read]) == (
        [web, function("files__read"), read],
        {"files__read": ("files", "read")},
    )
    assert flatten_namespace_tools(None) == flatten_namespace_tools([]) == ([], {})


def test_unknown_fields_are_dropped_and_named(caplog):
    raw = {"model": "m", "input": "hi", "stream": True, "prompt_cache_key": "k", "stream_options": {}}
    with caplog.at_level("INFO"):
        assert prepare(raw) == {"model": "m", "input": "hi"}
    assert caplog.messages == ["dropped from a streamed request: field 'prompt_cache_key'"]


def test_calls_and_choices_of_a_tool_in_a_namespace_get_its_joined_name():
    namespace = {"type": "namespace", "name": "fs", "description": "files", "tools": [function("read", defer=True)]}
    history = {"type": "function_call", "call_id": "c", "namespace": "fs", "name": "read", "arguments": "{}"}
    choice = {"type": "function", "namespace": "fs", "name": "read"}
    raw = {"input": [USER, history], "tools": [function("f"), namespace], "tool_choice": choice}
    params, names = sanitize_streaming_responses_body(raw)
    assert validate_streaming_responses_params(params)
    assert params["tools"] == [function("f"), function("fs__read")]
    assert params["input"][1]["name"] == "fs__read"
    assert "namespace" not in params["input"][1]
    assert params["tool_choice"] == {"type": "function", "name": "fs__read"}
    assert names == {"fs__read": ("fs", "read")}


def test_additional_tools_are_hoisted_out_of_the_input():
    params = prepare(
        {"input": [{"type": "additional_tools", "tools": [function("g")]}, USER], "tools": [function("f")]}
    )
    assert params["tools"] == [function("f"), function("g")]
    assert params["input"] == [USER]


def test_unsupported_tools_and_items_are_dropped_and_named(caplog):
    items = [USER, {"type": "web_search_call", "id": "w", "status": "asleep", "action": {}}, {"type": "ghost"}, {}]
    tools = [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}, function("f")]
    with caplog.at_level("INFO"):
        assert prepare({"input": items, "tools": tools}) == {"input": [USER], "tools": [function("f")]}
    assert caplog.messages == [
        "dropped from a streamed request: tool '' of type 'web_search', tool 'apply_patch' of type 'custom', "
        "input item 1 of type 'web_search_call', input item 2 of type 'ghost', input item 3 of type None"
    ]


@pytest.mark.parametrize("item", HOSTED, ids=lambda item: item["type"])
def test_hosted_items_reach_the_model(item):
    sanitized, _ = sanitize_streaming_responses_body({"input": [USER, item], "stream": True})
    assert sanitized["input"] == [USER, item]
    assert validate_streaming_responses_params(sanitized).input[1].type == item["type"]


def test_an_item_without_a_type_that_fits_the_schema_is_kept():
    assert prepare({"input": [USER, {"call_id": "c", "output": "done"}]})["input"][1]["output"] == "done"


def test_the_choice_of_a_dropped_tool_is_dropped():
    raw = {
        "input": "hi",
        "tools": [function("f"), {"type": "custom", "name": "p"}],
        "tool_choice": {"type": "custom", "name": "p"},
    }
    assert "tool_choice" not in prepare(raw)
    allowed = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "custom", "name": "p"}, {"type": "function", "name": "f"}],
    }
    assert prepare({**raw, "tool_choice": allowed})["tool_choice"]["tools"] == [{"type": "function", "name": "f"}]


def test_without_tools_nothing_is_said_about_their_use():
    raw = {"input": "hi", "tools": [{"type": "web_search"}], "tool_choice": "required", "parallel_tool_calls": True}
    assert prepare(raw) == {"input": "hi"}


def test_a_joined_name_that_is_taken_is_not_taken_twice():
    namespace = {"type": "namespace", "name": "a", "tools": [function("b")]}
    params, names = sanitize_streaming_responses_body({"input": "hi", "tools": [function("a__b"), namespace]})
    assert (params["tools"], names) == ([function("a__b")], {})


def test_leading_system_and_developer_messages_become_instructions():
    leading = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "b"}]},
        {"role": "system", "content": "c"},
    ]
    later = {"role": "developer", "content": "later"}
    params = prepare({"instructions": "a", "input": [*leading, USER, later]})
    assert (params["instructions"], params["input"]) == ("a\n\nb\n\nc", [USER, later])


def test_reasoning_without_an_id_and_fields_of_other_clients_are_made_valid():
    items = [
        {"type": "reasoning", "encrypted_content": "x", "summary": None},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t"}], "phase": "final"},
    ]
    assert prepare({"input": items})["input"] == [
        {"type": "reasoning", "encrypted_content": "x", "summary": [], "id": "rs_0"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t"}]},
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["message", "function", "namespace", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "tools", "namespace", "text"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(
    st.fixed_dictionaries(
        {}, optional={"input": st.lists(json_values), "tools": st.lists(json_values), "tool_choice": json_values}
    )
)
def test_whatever_is_sent_is_accepted_or_refused_by_the_schema(raw):
    with suppress(ValidationError):
        prepare(raw)


@settings(max_examples=25, deadline=None)
@given(cs.conversations(with_tokens=True))
def test_what_the_schema_knows_passes_whole_and_the_request_is_left_alone(items):
    raw = {"input": items, "stream": True, "client_metadata": {"x": 1}}
    before = deepcopy(raw)
    params = NeMoGymResponseCreateParamsNonStreaming.model_validate(sanitize_streaming_responses_body(raw)[0])
    assert raw == before
    direct = NeMoGymResponseCreateParamsNonStreaming(input=items)
    assert conversation(params) == conversation(direct)


def conversation(params: NeMoGymResponseCreateParamsNonStreaming) -> list[dict[str, Any]]:
    converter = ResponsesConverter(return_token_id_information=True)
    messages = converter.responses_to_chat_completion_create_params(params).messages
    return [message for message in messages if message["role"] not in ("system", "developer")]


@pytest.mark.parametrize(
    "raw", [{"input": [1]}, {"input": "hi", "tools": [1]}, {"input": [{"role": 1, "content": None}]}]
)
def test_what_has_no_shape_at_all_is_left_for_the_schema_to_refuse(raw):
    with pytest.raises(ValidationError):
        prepare(raw)


def test_forbidden_fields_are_pruned_at_any_depth():
    schema = {"type": "json_schema", "name": "n", "schema": {"unknown": 1}, "color": "red"}
    body = {"input": "hi", "reasoning": {"effort": "low", "context": "all"}, "text": {"format": schema}, "x": 1}
    before = deepcopy(body)
    params = validate_streaming_responses_params(body)
    assert isinstance(params, NeMoGymResponseCreateParamsNonStreaming)
    assert params.reasoning == {"effort": "low"}
    assert params.text == {"format": {"type": "json_schema", "name": "n", "schema": {"unknown": 1}}}
    assert body == before


@pytest.mark.parametrize(
    "body", [{}, {"input": 1}, {"input": [{"role": "user"}]}, {"input": "x", "text": {"format": 1}}]
)
def test_what_else_does_not_fit_is_refused(body):
    with pytest.raises(ValidationError):
        validate_streaming_responses_params({**body, "forbidden": 1})


def test_a_reply_is_created_told_item_by_item_and_completed():
    response = reply("hello", tool_call("files__read", {"path": "a"}))
    sent = events(synthesize_responses_sse(response, {"files__read": ("files", "read")}))
    kinds = ["response.created", *["response.output_item.done"] * 2, "response.completed"]
    assert [name for name, _ in sent] == [data["type"] for _, data in sent] == kinds
    assert [data["sequence_number"] for _, data in sent] == [0, 1, 2, 3]
    assert (sent[0][1]["response"]["status"], sent[0][1]["response"]["output"]) == ("in_progress", [])
    call = sent[2][1]["item"]
    assert (call["name"], call["namespace"]) == ("read", "files")
    assert sent[-1][1]["response"]["output"] == [sent[1][1]["item"], call]


def test_a_reply_is_taken_as_a_dict_too():
    response = reply("hello")
    assert list(synthesize_responses_sse(response.model_dump())) == list(synthesize_responses_sse(response))


def test_a_failure_is_a_stream_that_ends_with_it():
    name, data = events(synthesize_responses_failure_sse("down"))[-1]
    assert (name, data["response"]["status"]) == ("response.failed", "failed")
    assert data["response"]["error"] == {"code": "server_error", "message": "down"}
    _, data = events(synthesize_responses_failure_sse("slow down", code="rate_limit_exceeded"))[-1]
    assert data["response"]["error"]["code"] == "rate_limit_exceeded"
