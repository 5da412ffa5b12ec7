# SPDX-License-Identifier: Apache-2.0
"""Streamed Responses requests and replies, as servers use them through the public module."""

import json
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_streaming import (
    flatten_namespace_tools,
    sanitize_streaming_responses_body,
    synthesize_responses_failure_sse,
    synthesize_responses_sse,
    validate_streaming_responses_params,
)
from nemo_gym.testing import reply, tool_call

READ = {"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}
FILES = {"type": "namespace", "name": "files", "tools": [READ]}
USER = {"role": "user", "content": "hi"}
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


def events(stream: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    pieces = list(stream)
    assert all(type(piece) is str and piece.endswith("\n\n") for piece in pieces)
    named = [piece.removeprefix("event: ").split("\ndata: ") for piece in pieces]
    return [(name, json.loads(data)) for name, data in named]


def test_tools_of_a_namespace_get_joined_names():
    web = {"type": "web_search"}
    assert flatten_namespace_tools([web, FILES, READ]) == (
        [web, {**READ, "name": "files__read"}, READ],
        {"files__read": ("files", "read")},
    )
    assert flatten_namespace_tools(None) == flatten_namespace_tools([]) == ([], {})


def test_a_body_is_trimmed_to_what_the_schema_knows_and_left_alone_itself():
    body = {"input": [USER], "tools": [FILES], "stream": True, "client_metadata": {"x": 1}}
    before = deepcopy(body)
    sanitized, names = sanitize_streaming_responses_body(body)
    assert sanitized == {"input": [USER], "tools": [{**READ, "name": "files__read"}]}
    assert names == {"files__read": ("files", "read")}
    assert body == before


@pytest.mark.parametrize("item", HOSTED, ids=lambda item: item["type"])
def test_hosted_items_reach_the_model(item):
    sanitized, _ = sanitize_streaming_responses_body({"input": [USER, item], "stream": True})
    assert sanitized["input"] == [USER, item]
    assert validate_streaming_responses_params(sanitized).input[1].type == item["type"]


def test_what_was_left_out_is_logged(caplog):
    with caplog.at_level("INFO"):
        sanitized, _ = sanitize_streaming_responses_body({"input": [USER, {"type": "ghost"}], "stream": True})
    assert sanitized["input"] == [USER]
    assert "input item 1 of type 'ghost'" in caplog.text


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
