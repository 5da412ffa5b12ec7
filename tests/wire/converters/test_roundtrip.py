# SPDX-License-Identifier: Apache-2.0
"""Responses → chat → Responses: what comes back is what went in, but for ids and status."""

from typing import Any

from hypothesis import given, settings
from openai.types.responses import Response

from nemo_gym._wire.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym._wire.schema.replies import NeMoGymChatCompletion
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._wire.schema.tokens import REQUIRED_TOKEN_METADATA_FIELDS
from nemo_gym.responses_converter import ResponsesConverter
from tests.wire import convert_strategies as cs

converter = ResponsesConverter(return_token_id_information=True)
quick = settings(max_examples=30, deadline=None)


def request(items: list[dict[str, Any]], **fields: Any) -> NeMoGymResponseCreateParamsNonStreaming:
    return NeMoGymResponseCreateParamsNonStreaming(input=items, **fields)


def essence(params: NeMoGymResponseCreateParamsNonStreaming) -> list[dict[str, Any]]:
    """The items without what chat has no place for."""
    dumped = [item.model_dump(exclude_none=True) for item in params.input]
    return [{key: value for key, value in item.items() if key not in ("id", "status")} for item in dumped]


@quick
@given(cs.conversations())
def test_a_conversation_survives_the_way_through_chat(items):
    params = request(items)
    chat = converter.responses_to_chat_completion_create_params(params)
    assert essence(converter.chat_completion_to_responses_create_params(chat)) == essence(params)


@quick
@given(cs.conversations(with_tokens=True))
def test_every_token_id_survives_the_way_through_chat(items):
    params = request(items)
    chat = converter.responses_to_chat_completion_create_params(params)
    assert essence(converter.chat_completion_to_responses_create_params(chat)) == essence(params)
    assert token_ids(chat.messages) == token_ids(items)


@quick
@given(cs.assistant_turns(with_tokens=True), cs.assistant_turns(with_tokens=True))
def test_two_model_calls_in_a_row_keep_their_own_message_and_tokens(first, second):
    both, one, other = (
        converter.responses_to_chat_completion_create_params(request(items)).messages
        for items in (first + second, first, second)
    )
    assert both == one + other
    assert token_ids(both) == token_ids(first + second)


@quick
@given(cs.conversations(with_tokens=True))
def test_what_goes_to_the_endpoint_is_a_valid_chat_request(items):
    chat = converter.responses_to_chat_completion_create_params(request(items))
    assert NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(chat.model_dump()) == chat


@quick
@given(cs.assistant_turns(), cs.assistant_turns())
def test_everything_between_two_outside_messages_is_one_assistant_message(first, second):
    chat = converter.responses_to_chat_completion_create_params(request(first + second))
    (message,) = chat.messages
    calls = [item["call_id"] for item in first + second if item["type"] == "function_call"]
    assert [call["id"] for call in message.get("tool_calls", [])] == calls
    assert "tool_calls" not in message or message["tool_calls"]


@quick
@given(cs.chat_messages)
def test_a_reply_becomes_a_response_that_the_official_client_accepts(message):
    completion = NeMoGymChatCompletion.model_validate(cs.completion(message))
    response = converter.chat_completion_to_response(request([]), completion)
    Response.model_validate(response.model_dump())
    items = [item.model_dump() for item in response.output]
    assert [item["name"] for item in items if item["type"] == "function_call"] == [
        call["function"]["name"] for call in message["tool_calls"] or []
    ]
    assert texts(items, "text") == (message["content"] or "")
    assert texts(items, "refusal") == (message["refusal"] or "")
    assert items


@quick
@given(cs.assistant_turns(with_tokens=True))
def test_a_reply_given_back_as_input_is_the_same_chat_message(turn):
    (message,) = converter.responses_to_chat_completion_create_params(request(turn)).messages
    completion = NeMoGymChatCompletion.model_validate(cs.completion(message))
    reply = converter.chat_completion_to_response(request([]), completion)
    again = converter.responses_to_chat_completion_create_params(request(reply.output))
    assert again.messages == [message]


def token_ids(carriers: list[dict[str, Any]]) -> list[list[Any]]:
    return [
        [carrier[name] for name in REQUIRED_TOKEN_METADATA_FIELDS]
        for carrier in carriers
        if "prompt_token_ids" in carrier
    ]


def texts(items: list[dict[str, Any]], field: str) -> str:
    return "".join(part.get(field, "") for item in items if item["type"] == "message" for part in item["content"])
