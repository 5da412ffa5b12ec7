# SPDX-License-Identifier: Apache-2.0
"""A model's reply: read leniently, written back whole, in both dialects."""

from typing import Any

import pytest
from openai.types import CompletionUsage
from openai.types.responses import FunctionTool, ToolChoiceFunction
from openai.types.responses.response import IncompleteDetails
from openai.types.shared import Reasoning
from pydantic import ValidationError

from nemo_gym._wire.schema.replies import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionMessage,
    NeMoGymChatCompletionMessageForTraining,
    NeMoGymResponse,
)

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}


def response(**fields: Any) -> NeMoGymResponse:
    required = {
        "id": "r",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return NeMoGymResponse(**{**required, **fields})


def said(*texts: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}


@pytest.mark.parametrize("field", ["id", "created_at", "model", "object", "output", "parallel_tool_calls", "tools"])
def test_what_the_contract_requires_is_required(field):
    complete = response().model_dump()
    del complete[field]
    with pytest.raises(ValidationError, match=field):
        NeMoGymResponse.model_validate(complete)


def test_unknown_fields_are_kept_at_every_level():
    reply = response(
        cost=0.5,
        output=[{**said("hi"), "phase": "final"}],
        usage={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "cost": 0.5},
        incomplete_details={"reason": "tired", "since": 3},
    )
    again = NeMoGymResponse.model_validate(NeMoGymResponse.model_validate(reply.model_dump()).model_dump())
    assert again == reply
    assert (again.cost, again.output[0].phase, again.usage.cost, again.incomplete_details.since) == (
        0.5,
        "final",
        0.5,
        3,
    )


def test_its_parts_read_as_attributes():
    reply = response(
        tools=[TOOL, {"type": "web_search", "search_context_size": "low"}],
        tool_choice={"type": "function", "name": "f"},
        incomplete_details={"reason": "max_output_tokens"},
        reasoning={"effort": "low"},
        error={"code": "server_error", "message": "oops"},
        text={"format": {"type": "text"}},
    )
    assert (reply.tools[0].name, reply.tools[0].description, reply.tools[1].search_context_size) == ("f", None, "low")
    assert reply.tools[0].parameters == {"type": "object"}
    assert reply.tool_choice.name == "f"
    assert reply.incomplete_details.reason == "max_output_tokens"
    assert reply.reasoning.effort == "low"
    assert reply.error.message == "oops"
    assert reply.text.format.type == "text"


def test_sdk_objects_are_accepted_where_the_sdks_types_were():
    reply = response(
        tools=[FunctionTool(**TOOL)],
        tool_choice=ToolChoiceFunction(type="function", name="f"),
        incomplete_details=IncompleteDetails(reason="content_filter"),
        reasoning=Reasoning(effort="low"),
    )
    assert reply.model_dump(exclude_unset=True)["tools"] == [TOOL]
    assert reply.tool_choice.name == "f"
    assert reply.incomplete_details.reason == "content_filter"
    assert reply.reasoning.effort == "low"


def test_output_text_is_what_the_model_said():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    reasoning = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    question = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and then?"}]}
    refusal = {**said(), "content": [{"type": "refusal", "refusal": "no"}]}
    assert response(output=[said("a", "b"), call, reasoning, question, refusal, said("c")]).output_text == "abc"


def test_a_text_part_without_annotations_has_none():
    part = {"type": "output_text", "text": "hi"}
    (message,) = response(output=[{**said(), "content": [part]}]).output
    assert message.content[0].annotations == []


def test_usage_details_that_are_missing_or_null_are_zero():
    counts = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    for usage in (counts, {**counts, "input_tokens_details": None, "output_tokens_details": None}):
        reply = response(usage=usage)
        assert reply.usage.input_tokens_details.cached_tokens == 0
        assert reply.usage.output_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize("tools", [[3], ["web_search"], [None]])
def test_a_tool_must_be_an_object(tools):
    with pytest.raises(ValidationError, match="a tool must be an object"):
        response(tools=tools)


def completion(message: Any = None, **fields: Any) -> NeMoGymChatCompletion:
    choices = [] if message is None else [{"index": 0, "finish_reason": "stop", "message": message}]
    required = {"id": "c", "created": 0, "model": "m", "object": "chat.completion", "choices": choices}
    return NeMoGymChatCompletion(**{**required, **fields})


def test_a_completion_without_choices_is_valid():
    assert completion().choices == []


def test_a_chat_message_keeps_fields_of_the_provider():
    reply = completion({"role": "assistant", "content": None, "reasoning_content": "hm"})
    assert type(reply.choices[0].message) is NeMoGymChatCompletionMessage
    assert reply.choices[0].message.reasoning_content == "hm"


def test_a_tool_call_without_type_is_a_function_call():
    message = {"role": "assistant", "tool_calls": [{"id": "t", "function": {"name": "f", "arguments": "{}"}}]}
    (call,) = completion(message).choices[0].message.tool_calls
    assert (call.type, call.function.name) == ("function", "f")


def test_a_chat_message_with_token_fields_is_the_training_twin():
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.1]}
    message = completion({"role": "assistant", "content": "hi", **tokens}).choices[0].message
    assert type(message) is NeMoGymChatCompletionMessageForTraining
    assert message.generation_log_probs == [-0.1]


def test_token_fields_of_a_chat_message_come_complete_or_not_at_all():
    with pytest.raises(ValueError, match="token metadata must come complete"):
        completion({"role": "assistant", "content": "hi", "generation_token_ids": [2]})


def test_a_message_instance_keeps_its_identity():
    message = NeMoGymChatCompletionMessage(role="assistant", content="hi")
    assert completion(message).choices[0].message is message


def test_an_sdk_usage_is_accepted():
    usage = CompletionUsage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    assert completion(usage=usage).usage.total_tokens == 3
