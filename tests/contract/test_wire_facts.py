# SPDX-License-Identifier: Apache-2.0
"""How requests, replies and counts behave that servers, agents and clients written elsewhere rely on."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymFunctionCallOutput,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseInputItem,
    NeMoGymResponseOutputItem,
    NeMoGymResponseUsage,
    accumulate_response_usage,
)
from nemo_gym.responses_converter import ResponsesConverter, _usage_detail

INPUT: TypeAdapter[Any] = TypeAdapter(NeMoGymResponseInputItem)
OUTPUT: TypeAdapter[Any] = TypeAdapter(NeMoGymResponseOutputItem)

STATUSES = {
    "code_interpreter_call": "in_progress completed incomplete interpreting failed",
    "computer_call": "in_progress completed incomplete",
    "computer_call_output": "in_progress completed incomplete",
    "local_shell_call": "in_progress completed incomplete",
    "local_shell_call_output": "in_progress completed incomplete",
    "file_search_call": "in_progress completed incomplete searching failed",
    "image_generation_call": "in_progress completed generating failed",
    "web_search_call": "in_progress searching completed failed",
}
SHELL = {"command": ["ls"], "env": {}, "type": "exec"}
HOSTED: dict[str, dict[str, Any]] = {
    "code_interpreter_call": {"id": "i", "container_id": "c"},
    "computer_call": {"id": "i", "call_id": "c", "action": {"type": "wait"}, "pending_safety_checks": []},
    "computer_call_output": {"call_id": "c", "output": {"type": "computer_screenshot"}},
    "local_shell_call": {"id": "i", "call_id": "c", "action": SHELL},
    "local_shell_call_output": {"id": "i", "output": "x"},
    "file_search_call": {"id": "i", "queries": []},
    "image_generation_call": {"id": "i"},
    "web_search_call": {"id": "i", "action": {"type": "search"}},
}


@pytest.mark.parametrize(("kind", "known"), STATUSES.items())
def test_a_hosted_item_of_a_request_has_one_of_the_known_statuses(kind: str, known: str) -> None:
    item = {"type": kind, **HOSTED[kind]}
    for status in known.split():
        assert INPUT.validate_python({**item, "status": status}).status == status
    with pytest.raises(ValidationError, match=f"{kind}.*'asleep'; known: {known.split()[0]}"):
        INPUT.validate_python({**item, "status": "asleep"})
    assert OUTPUT.validate_python({**item, "status": "asleep"}).status == "asleep"  # a reply is never lost for it


@pytest.mark.parametrize(
    "item",
    [
        {"type": "mcp_call", "name": "f", "arguments": "{}", "status": "calling"},
        {"type": "mcp_list_tools"},
        {"type": "mcp_list_tools", "tools": ["f", {"any": "thing"}]},
        {"type": "mcp_approval_request", "name": "f", "arguments": "{}"},
    ],
)
@pytest.mark.parametrize("adapter", [INPUT, OUTPUT], ids=["input", "output"])
def test_items_about_mcp_need_neither_id_nor_server(adapter: TypeAdapter[Any], item: dict[str, Any]) -> None:
    found = adapter.validate_python(item)
    assert (found.id, found.server_label) == (None, None)
    assert found.model_dump(exclude_unset=True) == item


def test_a_list_of_tools_may_be_left_out() -> None:
    assert INPUT.validate_python({"type": "mcp_list_tools"}).tools == []


@pytest.mark.parametrize("name", ["prompt_cache_key", "safety_identifier", "verbosity", "made_up"])
def test_a_chat_request_drops_what_it_has_no_field_for(name: str) -> None:
    params = NeMoGymChatCompletionCreateParamsNonStreaming.model_validate({"messages": [], name: "x"})
    assert name not in params.model_dump()
    assert name not in params.model_dump(exclude_unset=True)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "data:,"},
        {"type": "input_image", "image_url": "data:,", "detail": "low"},
        {"type": "input_file", "file_data": "x", "filename": "a.txt"},
        {"type": "input_text", "text": "x"},
    ],
)
def test_the_parts_of_a_tools_output_are_dumped_with_the_keys_they_were_given(part: dict[str, Any]) -> None:
    output = NeMoGymFunctionCallOutput(call_id="c", output=[part])
    assert output.model_dump()["output"] == [part]
    assert output.model_dump(mode="json")["output"] == [part]
    assert NeMoGymFunctionCallOutput.model_validate_json(output.model_dump_json()) == output


def completion(**usage: Any) -> NeMoGymChatCompletion:
    message = {"role": "assistant", "content": "hi"}
    return NeMoGymChatCompletion.model_validate(
        {
            "id": "c",
            "created": 1234,
            "model": "m",
            "object": "chat.completion",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, **usage} if usage else None,
        }
    )


def converted(reply: NeMoGymChatCompletion) -> Any:
    asked = NeMoGymResponseCreateParamsNonStreaming(input="hi")
    return ResponsesConverter(return_token_id_information=False).chat_completion_to_response(asked, reply)


def test_a_response_was_created_when_its_completion_was() -> None:
    assert converted(completion()).created_at == 1234


@pytest.mark.parametrize(
    ("usage", "cached", "reasoning"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 2}, "cached_input_tokens": 4}, 2, 0),
        ({"cached_input_tokens": 4, "reasoning_output_tokens": 1}, 4, 1),
        ({"prompt_tokens_details": {"cached_tokens": None}, "cache_read_input_tokens": 0}, 0, 0),
        ({"completion_tokens_details": {"reasoning_tokens": 3}}, 0, 3),
    ],
)
def test_details_of_a_usage_are_found_under_the_names_that_providers_give_them(
    usage: dict[str, Any], cached: int, reasoning: int
) -> None:
    found = converted(completion(**usage)).usage
    assert found.input_tokens_details.cached_tokens == cached
    assert found.output_tokens_details.reasoning_tokens == reasoning


def test_a_detail_is_read_from_its_group_and_else_from_the_usage_itself() -> None:
    nested = SimpleNamespace(details=SimpleNamespace(cached=1), other=2)
    assert _usage_detail(nested, "details", "cached", "other") == 1
    assert _usage_detail({"details": None, "other": 2}, "details", "cached", "missing", "other") == 2
    assert _usage_detail({"details": {"other": 2}}, "details", "cached", "other") is None
    assert _usage_detail(None, "details", "cached", "other") is None


def usage_of(cached: int | None) -> NeMoGymResponseUsage:
    details = {"cached_tokens": cached}
    return NeMoGymResponseUsage(input_tokens=1, output_tokens=1, total_tokens=2, input_tokens_details=details)


def without_details() -> NeMoGymResponseUsage:
    usage = usage_of(None)
    return usage.model_copy(update={"input_tokens_details": None, "output_tokens_details": None})


def test_a_usage_without_details_adds_its_counts_and_leaves_the_first_ones_details() -> None:
    first = usage_of(7)
    total = accumulate_response_usage(first, without_details())
    assert total is not None
    assert (total.input_tokens, total.total_tokens) == (2, 4)
    assert total.input_tokens_details == first.input_tokens_details
    turned = accumulate_response_usage(without_details(), first)
    assert turned is not None
    assert (turned.total_tokens, turned.input_tokens_details, turned.output_tokens_details) == (4, None, None)
