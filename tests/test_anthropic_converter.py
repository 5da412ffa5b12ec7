# SPDX-License-Identifier: Apache-2.0
"""Anthropic Messages ↔ Responses, against the official client's own types."""

from typing import Any

import hypothesis.strategies as st
import orjson
import pytest
from anthropic.types import Message, MessageParam
from hypothesis import given, settings
from pydantic import TypeAdapter, ValidationError

from nemo_gym.anthropic_converter import messages_to_responses_create_params, response_to_anthropic_message
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.responses_converter import ResponsesConverter
from tests.wire import convert_strategies as cs

quick = settings(max_examples=30, deadline=None)
official_messages: TypeAdapter[Any] = TypeAdapter(list[MessageParam])


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def request(*messages: dict[str, Any], **fields: Any) -> Any:
    return messages_to_responses_create_params({"model": "m", "max_tokens": 9, "messages": list(messages), **fields})


def items(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    dumped = [item.model_dump(exclude_unset=True, exclude_none=True) for item in request(*messages).input]
    return [{key: value for key, value in item.items() if key != "id"} for item in dumped]


def reply(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return response_to_anthropic_message(NeMoGymResponse.model_validate(cs.response(list(output), **fields)))


def said(words: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return {"type": "message", "id": "m", "role": "assistant", "content": content}


def call(arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments}


# Requests


def test_parameters_find_their_fields():
    params = request(
        {"role": "user", "content": "hi"},
        system=[text("a"), text("b")],
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        stop_sequences=["END"],
        metadata={"user_id": "u"},
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        thinking={"type": "enabled", "budget_tokens": 1024},
        stream=True,
    )
    fields = params.model_dump(exclude_unset=True, exclude={"input"})
    assert orjson.loads(fields.pop("metadata")["extra_body"]) == {"stop": ["END"], "top_k": 5}
    assert fields == {
        "instructions": "a\n\nb",
        "max_output_tokens": 9,
        "model": "m",
        "temperature": 0.5,
        "top_p": 0.9,
        "user": "u",
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "output", "schema": {"type": "object"}, "strict": True}},
    }


TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "name": "f"}),
    ],
)
def test_tools_and_how_to_use_them(choice, expected):
    params = request(user(text("hi")), tools=[TOOL], tool_choice=choice)
    tool = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": None}
    assert params.tools == [tool]
    assert params.tool_choice == expected
    assert params.parallel_tool_calls is True


def test_parallel_calls_can_be_turned_off():
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert request(user(text("hi")), tools=[TOOL], tool_choice=choice).parallel_tool_calls is False


def test_a_conversation_with_thinking_tools_and_results():
    history = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hmm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "secret"},
                text("calling"),
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "g", "input": {}},
            ],
        },
        user(
            {"type": "tool_result", "tool_use_id": "c1", "content": "out"},
            {"type": "tool_result", "tool_use_id": "c2", "content": [text("bad")], "is_error": True},
            text("and now?"),
        ),
    ]
    assert items(*history) == [
        {"type": "message", "role": "user", "content": "go"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}], "encrypted_content": "sig"},
        {"type": "reasoning", "summary": [], "encrypted_content": "secret"},
        {"type": "message", "role": "assistant", "content": "calling"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "out"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "bad"}],
            "status": "incomplete",
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and now?"}]},
    ]


def test_images_and_documents_stay_where_they_stand():
    png = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}
    blocks = [
        text("see"),
        {"type": "image", "source": png},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/i"}},
        {"type": "document", "source": pdf, "title": "t.pdf"},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/d"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
    ]
    (message,) = items(user(*blocks))
    assert message["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.org/i", "detail": "auto"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,BBBB", "filename": "t.pdf"},
        {"type": "input_file", "file_url": "https://example.org/d"},
        {"type": "input_text", "text": "plain"},
    ]


def test_an_unknown_block_is_refused_by_name():
    with pytest.raises(ValidationError, match="server_tool_use"):
        request(user({"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}))


def test_an_image_that_an_assistant_shows_is_refused():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/i"}}
    with pytest.raises(NotImplementedError, match="'image'"):
        request({"role": "assistant", "content": [image]})


# Replies


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (reply(said("x")), "end_turn"),
        (reply(said("x"), call("{}")), "tool_use"),
        (reply(said("x"), call("{"), incomplete_details={"reason": "max_output_tokens"}), "max_tokens"),
        (reply(said("x"), incomplete_details={"reason": "content_filter"}), "refusal"),
        (reply({**said(""), "content": [{"type": "refusal", "refusal": "no"}]}), "refusal"),
        (reply(said("x"), stop_sequence="END"), "stop_sequence"),
    ],
)
def test_why_a_reply_ended(message, reason):
    assert Message.model_validate(message).stop_reason == reason


def test_cached_tokens_are_counted_apart():
    details = {"input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1}}
    message = reply(said("x"), usage={"input_tokens": 10, "output_tokens": 3, "total_tokens": 13, **details})
    assert message["usage"] == {
        "input_tokens": 5,
        "cache_read_input_tokens": 4,
        "cache_creation_input_tokens": 1,
        "output_tokens": 3,
    }


@pytest.mark.parametrize("arguments", ["{not json", "[1]", "null", '"x"'])
def test_arguments_that_are_no_object_come_back_as_the_model_wrote_them(arguments):
    message = reply(call(arguments))
    Message.model_validate(message)
    assert items({"role": "assistant", "content": message["content"]})[0]["arguments"] == arguments


def test_every_thought_is_a_block_and_the_signature_closes_the_last():
    thoughts = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    message = reply({"type": "reasoning", "id": "rs", "summary": thoughts, "encrypted_content": "sig"})
    assert message["content"] == [
        {"type": "thinking", "thinking": "a", "signature": ""},
        {"type": "thinking", "thinking": "b", "signature": "sig"},
    ]


def test_reasoning_that_cannot_be_read_is_a_redacted_block():
    message = reply({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "secret"})
    assert message["content"] == [{"type": "redacted_thinking", "data": "secret"}]


def test_items_of_hosted_tools_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="'web_search_call'"):
        reply(
            {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}}
        )


@quick
@given(cs.assistant_turns(), st.none() | cs.words)
def test_a_reply_is_an_official_message_and_means_the_same_when_it_comes_back(output, signature):
    output = [{**item, "encrypted_content": signature} if item["type"] == "reasoning" else item for item in output]
    message = reply(*output)
    Message.model_validate(message)
    official_messages.validate_python([{"role": "assistant", "content": message["content"]}])
    history = request({"role": "assistant", "content": message["content"]})
    assert chat_text(history.input) == chat_text(NeMoGymResponse.model_validate(cs.response(output)).output)


def chat_text(items: list[Any]) -> list[Any]:
    """What a chat model would be shown of `items`; Anthropic has refusals and text in one kind of block."""
    converter = ResponsesConverter(return_token_id_information=False)
    params = request().model_copy(update={"input": items})
    return [
        (
            (message["content"] or "") + message.get("refusal", ""),
            [named(call) for call in message.get("tool_calls", [])],
        )
        for message in converter.responses_to_chat_completion_create_params(params).messages
        if message["content"] or message.get("refusal") or message.get("tool_calls")
    ]


def named(tool_call: dict[str, Any]) -> tuple[str, str, Any]:
    function = tool_call["function"]
    return tool_call["id"], function["name"], function["arguments"] or "{}"
