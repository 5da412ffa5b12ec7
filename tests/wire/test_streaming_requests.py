# SPDX-License-Identifier: Apache-2.0
"""What a streaming client's Responses request is trimmed to."""

from contextlib import suppress
from copy import deepcopy
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._wire.streaming_requests import prepare_streaming_request, restore_tool_name
from nemo_gym.responses_converter import ResponsesConverter
from tests.wire import convert_strategies as cs

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False, **fields}


def prepare(raw: dict[str, Any], **kinds: Any) -> dict[str, Any]:
    params = prepare_streaming_request(raw, **kinds).params
    NeMoGymResponseCreateParamsNonStreaming.model_validate(params)
    return params


def test_unknown_fields_are_dropped_and_named():
    raw = {"model": "m", "input": "hi", "stream": True, "prompt_cache_key": "k", "stream_options": {}}
    params, _, dropped = prepare_streaming_request(raw)
    assert params == {"model": "m", "input": "hi"}
    assert dropped == ("field 'prompt_cache_key'",)


def test_tools_in_a_namespace_are_flattened_and_restored():
    namespace = {"type": "namespace", "name": "fs", "description": "files", "tools": [function("read", defer=True)]}
    history = {"type": "function_call", "call_id": "c", "namespace": "fs", "name": "read", "arguments": "{}"}
    choice = {"type": "function", "namespace": "fs", "name": "read"}
    raw = {"input": [USER, history], "tools": [function("f"), namespace], "tool_choice": choice}
    params, tool_names, _ = prepare_streaming_request(raw)
    assert NeMoGymResponseCreateParamsNonStreaming.model_validate(params)
    assert params["tools"] == [function("f"), function("fs__read")]
    assert params["input"][1]["name"] == "fs__read"
    assert "namespace" not in params["input"][1]
    assert params["tool_choice"] == {"type": "function", "name": "fs__read"}
    reply = {"type": "function_call", "name": "fs__read", "arguments": "{}"}
    assert restore_tool_name(reply, tool_names) == {**reply, "namespace": "fs", "name": "read"}
    assert restore_tool_name({**reply, "name": "f"}, tool_names) == {**reply, "name": "f"}


def test_additional_tools_are_hoisted_out_of_the_input():
    params = prepare(
        {"input": [{"type": "additional_tools", "tools": [function("g")]}, USER], "tools": [function("f")]}
    )
    assert params["tools"] == [function("f"), function("g")]
    assert params["input"] == [USER]


def test_unsupported_tools_and_items_are_dropped_and_named():
    items = [USER, {"type": "web_search_call", "id": "w", "status": "asleep", "action": {}}, {"type": "ghost"}, {}]
    tools = [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}, function("f")]
    params, _, dropped = prepare_streaming_request({"input": items, "tools": tools})
    assert params == {"input": [USER], "tools": [function("f")]}
    assert dropped == (
        "tool '' of type 'web_search'",
        "tool 'apply_patch' of type 'custom'",
        "input item 1 of type 'web_search_call'",
        "input item 2 of type 'ghost'",
        "input item 3 of type None",
    )


def test_an_item_that_fits_the_schema_is_kept_whatever_its_kind():
    items = [
        USER,
        {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "x"},
        {"type": "mcp_call", "name": "p", "arguments": "{}", "server_label": "s"},
        {"call_id": "c", "output": "done"},
    ]
    assert prepare({"input": items})["input"] == items


def test_a_responses_endpoint_can_keep_more_kinds():
    raw = {"input": "hi", "tools": [{"type": "web_search"}, {"type": "custom", "name": "p"}]}
    assert prepare(raw, tool_types={"web_search", "custom"}) == raw


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


def test_a_flat_name_that_is_taken_is_not_taken_twice():
    namespace = {"type": "namespace", "name": "a", "tools": [function("b")]}
    params, tool_names, _ = prepare_streaming_request({"input": "hi", "tools": [function("a__b"), namespace]})
    assert params["tools"] == [function("a__b")]
    assert restore_tool_name({"type": "function_call", "name": "a__b"}, tool_names) == {
        "type": "function_call",
        "name": "a__b",
    }


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


json = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["message", "function", "namespace", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "tools", "namespace", "text"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({}, optional={"input": st.lists(json), "tools": st.lists(json), "tool_choice": json}))
def test_whatever_is_sent_is_accepted_or_refused_by_the_schema(raw):
    params = prepare_streaming_request(raw).params
    with suppress(ValidationError):
        NeMoGymResponseCreateParamsNonStreaming.model_validate(params)


@settings(max_examples=50, deadline=None)
@given(cs.conversations(with_tokens=True))
def test_what_the_schema_knows_passes_whole_and_the_request_is_left_alone(items):
    raw = {"input": items, "stream": True}
    before = deepcopy(raw)
    params = NeMoGymResponseCreateParamsNonStreaming.model_validate(prepare_streaming_request(raw)[0])
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
        NeMoGymResponseCreateParamsNonStreaming.model_validate(prepare_streaming_request(raw)[0])
