# SPDX-License-Identifier: Apache-2.0
"""What the openai SDK's own types accept and emit, ours accept and emit unchanged; the SDK reads back what we wrote."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses import Response, ResponseInputItem, ResponseOutputItem
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import BaseModel, TypeAdapter

from nemo_gym._wire.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym._wire.schema.item_unions import NeMoGymResponseInputItem, NeMoGymResponseOutputItem
from nemo_gym._wire.schema.replies import NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming
from tests.wire import strategies as wire

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

OUR_INPUT_ITEM: TypeAdapter[Any] = TypeAdapter(NeMoGymResponseInputItem)
OUR_OUTPUT_ITEM: TypeAdapter[Any] = TypeAdapter(NeMoGymResponseOutputItem)
SDK_INPUT_ITEM: TypeAdapter[Any] = TypeAdapter(ResponseInputItem)
SDK_OUTPUT_ITEM: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)
SDK_PARAMS: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsNonStreaming)
SDK_CHAT_PARAMS: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsNonStreaming)


def dumped(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_unset=True, by_alias=True)


def materialised(value: Any) -> Any:
    """The SDK types lists of requests as Iterable, which pydantic validates lazily."""
    if isinstance(value, dict):
        return {key: materialised(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return [materialised(item) for item in value]


@quick
@given(wire.input_items)
def test_an_input_item_reads_and_writes_as_in_the_sdk(payload):
    ours = dumped(OUR_INPUT_ITEM.validate_python(payload))
    assert ours == dumped(SDK_INPUT_ITEM.validate_python(payload)) == payload
    assert dumped(SDK_INPUT_ITEM.validate_python(ours)) == payload


@quick
@given(wire.output_items)
def test_an_output_item_reads_and_writes_as_in_the_sdk(payload):
    from_sdk = dumped(SDK_OUTPUT_ITEM.validate_python(payload))
    ours = dumped(OUR_OUTPUT_ITEM.validate_python(from_sdk))
    assert ours == from_sdk == payload
    assert dumped(SDK_OUTPUT_ITEM.validate_python(ours)) == payload


@quick
@given(wire.responses)
def test_a_response_reads_and_writes_as_in_the_sdk(payload):
    from_sdk = dumped(Response.model_validate(payload))
    ours = NeMoGymResponse.model_validate(from_sdk)
    assert dumped(ours) == from_sdk == payload
    assert dumped(Response.model_validate(dumped(ours))) == payload
    assert ours.output_text == Response.construct(**payload).output_text


@quick
@given(wire.responses)
def test_a_full_dump_of_a_response_reads_back_and_satisfies_the_sdk(payload):
    response = NeMoGymResponse.model_validate(payload)
    again = NeMoGymResponse.model_validate(response.model_dump())
    assert again == response
    assert NeMoGymResponse.model_validate_json(again.model_dump_json()) == response
    Response.model_validate(response.model_dump())


@quick
@given(wire.create_params)
def test_create_params_read_and_write_as_in_the_sdk(payload):
    ours = dumped(NeMoGymResponseCreateParamsNonStreaming.model_validate(payload))
    assert ours == payload
    assert materialised(SDK_PARAMS.validate_python(ours)) == payload


@quick
@given(wire.chat_completions)
def test_a_chat_completion_reads_and_writes_as_in_the_sdk(payload):
    from_sdk = dumped(ChatCompletion.model_validate(payload))
    ours = dumped(NeMoGymChatCompletion.model_validate(from_sdk))
    assert ours == from_sdk == payload
    assert dumped(ChatCompletion.model_validate(ours)) == payload


@quick
@given(wire.chat_params)
def test_chat_params_read_and_write_as_in_the_sdk(payload):
    ours = dumped(NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(payload))
    assert ours == payload
    assert materialised(SDK_CHAT_PARAMS.validate_python(ours)) == payload


# Whole payloads seldom reach every field of a small part, so the parts are tried on their own too.


@quick
@given(part=wire.user_parts, call=wire.chat_tool_calls, tool=wire.chat_tools)
def test_the_parts_of_chat_params_read_and_write_as_in_the_sdk(part, call, tool):
    messages = [{"role": "user", "content": [part]}, {"role": "assistant", "tool_calls": [call]}]
    payload = {"model": "m", "messages": messages, "tools": [tool]}
    ours = dumped(NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(payload))
    assert ours == materialised(SDK_CHAT_PARAMS.validate_python(payload)) == payload


@quick
@given(part=wire.input_parts, function=wire.function_tools, tool=wire.hosted_tools, choice=wire.tool_choices)
def test_the_parts_of_create_params_read_and_write_as_in_the_sdk(part, function, tool, choice):
    payload = {"input": [{"role": "user", "content": [part]}], "tools": [function, tool], "tool_choice": choice}
    ours = dumped(NeMoGymResponseCreateParamsNonStreaming.model_validate(payload))
    assert ours == materialised(SDK_PARAMS.validate_python(payload)) == payload


@quick
@given(text=wire.output_texts, refusal=wire.refusals)
def test_the_parts_of_a_message_read_and_write_as_in_the_sdk(text, refusal):
    payload = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text, refusal]}
    assert (
        dumped(OUR_OUTPUT_ITEM.validate_python(payload)) == dumped(SDK_OUTPUT_ITEM.validate_python(payload)) == payload
    )


def _fields(cls: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in cls.model_fields.items()}


def test_a_response_has_the_fields_of_the_sdk():
    assert _fields(NeMoGymResponse) == _fields(Response)


def test_chat_params_have_the_fields_of_the_sdk_but_the_deprecated_and_the_newest_ones():
    sdk = set(CompletionCreateParamsNonStreaming.__annotations__)
    left_out = {"functions", "function_call", "prompt_cache_key", "safety_identifier", "verbosity"}
    assert _fields(NeMoGymChatCompletionCreateParamsNonStreaming) == sdk - left_out


def test_create_params_have_only_fields_of_the_sdk():
    assert _fields(NeMoGymResponseCreateParamsNonStreaming) < set(ResponseCreateParamsNonStreaming.__annotations__)
