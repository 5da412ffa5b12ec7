# SPDX-License-Identifier: Apache-2.0
"""The converter's contract, sentence by sentence. Round trips of arbitrary conversations: `tests/wire`."""

import pickle
from typing import Any

import pytest

from nemo_gym import responses_converter
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessageForTraining,
    NeMoGymChoice,
    NeMoGymEasyInputMessage,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCallForTraining,
    NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseReasoningItemForTraining,
)
from nemo_gym.responses_converter import (
    _RESPONSE_NON_BOUNDARY_TYPES,
    InvalidModelReply,
    ResponsesConverter,
    ResponsesConverterState,
    VLLMConverter,
    VLLMConverterResponsesToChatCompletionsState,
    _usage_detail,
    split_responses_input_output_items,
)
from tests.wire.convert_strategies import completion

USER = {"role": "user", "content": "hi", "type": "message"}
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.1]}
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}


@pytest.fixture
def converter() -> ResponsesConverter:
    return ResponsesConverter(return_token_id_information=False)


@pytest.fixture
def training_converter() -> ResponsesConverter:
    return ResponsesConverter(return_token_id_information=True)


def to_chat(converter: ResponsesConverter, input: Any, **fields: Any) -> dict[str, Any]:
    params = NeMoGymResponseCreateParamsNonStreaming(input=input, **fields)
    return converter.responses_to_chat_completion_create_params(params).model_dump(exclude_unset=True)


def to_response(
    converter: ResponsesConverter, message: dict[str, Any], finish_reason: str = "stop", **fields: Any
) -> Any:
    params = NeMoGymResponseCreateParamsNonStreaming(input="hi", model="asked-for", temperature=0.5)
    reply = NeMoGymChatCompletion.model_validate(completion({"role": "assistant", **message}, finish_reason, **fields))
    return converter.chat_completion_to_response(params, reply)


def reasoning(*thoughts: str, **fields: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": thought} for thought in thoughts]
    return {"type": "reasoning", "id": "rs", "summary": summary, **fields}


def said(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m", "role": "assistant", "content": content, **fields}


def test_old_names_are_the_same_classes():
    assert VLLMConverter is ResponsesConverter
    assert VLLMConverterResponsesToChatCompletionsState is ResponsesConverterState
    assert ResponsesConverter(return_token_id_information=False).uses_reasoning_parser is True


# To chat


def test_a_string_is_one_user_message_with_a_text_part(converter):
    assert to_chat(converter, "hello") == {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    }


def test_reasoning_text_and_parallel_calls_collapse_into_one_assistant_message(converter):
    second = {**CALL, "call_id": "c2", "name": "g"}
    chat = to_chat(converter, [USER, reasoning("a", "b"), said("hello"), CALL, second])
    assert chat["messages"][1:] == [
        {
            "role": "assistant",
            "content": "<think>a</think><think>b</think>hello",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        }
    ]


def test_an_assistant_message_of_calls_alone_has_no_content(converter):
    (message,) = to_chat(converter, [CALL])["messages"]
    assert message["content"] is None


def test_an_assistant_message_of_text_alone_has_no_tool_calls(converter):
    assert to_chat(converter, [said("x")])["messages"] == [{"role": "assistant", "content": "x"}]


def test_an_empty_assistant_turn_stays_a_turn(converter):
    assert to_chat(converter, [USER, said(""), USER])["messages"][1] == {"role": "assistant", "content": ""}


def test_a_refusal_goes_to_the_refusal_field(converter):
    item = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert to_chat(converter, [item])["messages"] == [{"role": "assistant", "content": None, "refusal": "no"}]


def test_reasoning_without_summary_is_told_by_its_full_text(converter):
    item = reasoning(content=[{"type": "reasoning_text", "text": "full"}])
    assert to_chat(converter, [item])["messages"][0]["content"] == "<think>full</think>"


def test_a_tool_output_is_a_tool_message(converter):
    output = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "out"}]}
    assert to_chat(converter, [CALL, output])["messages"][1] == {
        "role": "tool",
        "content": [{"type": "text", "text": "out"}],
        "tool_call_id": "c1",
    }


def test_chat_shaped_turns_of_a_tool_reach_the_chat_request(converter):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "7"},
    ]
    assert to_chat(converter, turns)["messages"] == [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "7", "tool_call_id": "c1"},
    ]


def test_an_image_as_tool_output_is_refused_by_name(converter):
    image = {"type": "input_image", "image_url": "https://example.org/x", "detail": "auto"}
    with pytest.raises(NotImplementedError, match="input_image"):
        to_chat(converter, [CALL, {"type": "function_call_output", "call_id": "c1", "output": [image]}])


def test_images_videos_and_files_become_chat_parts(converter):
    content = [
        {"type": "input_image", "image_url": "https://example.org/i", "detail": "low"},
        {"type": "input_video", "video_url": "https://example.org/v"},
        {"type": "input_video", "video": {"url": "https://example.org/w"}},
        {"type": "input_file", "file_id": "file-1"},
    ]
    assert to_chat(converter, [{"role": "user", "content": content}])["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "https://example.org/i", "detail": "low"}},
        {"type": "video_url", "video_url": {"url": "https://example.org/v"}},
        {"type": "video_url", "video_url": {"url": "https://example.org/w"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]


@pytest.mark.parametrize(
    "part", [{"type": "input_image", "file_id": "f"}, {"type": "input_file", "file_url": "https://example.org/f"}]
)
def test_what_chat_cannot_reference_is_refused_with_a_hint(converter, part):
    with pytest.raises(NotImplementedError, match="hint: "):
        to_chat(converter, [{"role": "user", "content": [part]}])


def test_instructions_and_leading_system_messages_are_one_system_message(converter):
    leading = [
        {"role": "system", "content": "b"},
        {"role": "developer", "content": [{"type": "input_text", "text": "c"}]},
    ]
    chat = to_chat(converter, [*leading, USER, {"role": "system", "content": "later"}], instructions="a")
    assert chat["messages"] == [
        {"role": "system", "content": "a\n\nb\n\nc"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "later"},
    ]


def test_without_instructions_a_developer_message_keeps_its_role(converter):
    chat = to_chat(converter, [{"role": "developer", "content": "be kind"}, USER])
    assert chat["messages"][0] == {"role": "developer", "content": "be kind"}


def test_parameters_change_their_names(converter):
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    chat = to_chat(
        converter,
        "hi",
        max_output_tokens=7,
        reasoning={"effort": "low"},
        temperature=0.0,
        metadata={"extra_body": "{}"},
        top_logprobs=2,
        text={"format": schema, "verbosity": "low"},
        truncation="auto",
    )
    del chat["messages"]
    assert chat == {
        "max_tokens": 7,
        "reasoning_effort": "low",
        "temperature": 0.0,
        "metadata": {"extra_body": '{"verbosity":"low"}'},
        "top_logprobs": 2,
        "logprobs": True,
        "response_format": {
            "type": "json_schema",
            "json_schema": {key: schema[key] for key in ("name", "schema", "strict")},
        },
    }


def test_tools_are_wrapped_and_lose_strict(converter):
    chat = to_chat(
        converter, "hi", tools=[TOOL], tool_choice={"type": "function", "name": "f"}, parallel_tool_calls=False
    )
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    assert chat["tools"] == [{"type": "function", "function": function}]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert chat["parallel_tool_calls"] is False


def test_without_tools_there_is_no_word_about_their_use(converter):
    chat = to_chat(converter, "hi", tools=[], tool_choice="auto", parallel_tool_calls=True)
    assert chat.keys() == {"messages"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "f"}])
def test_a_required_call_without_tools_is_an_error(converter, choice):
    with pytest.raises(ValueError, match="no tools"):
        to_chat(converter, "hi", tool_choice=choice)


def test_other_items_and_tools_are_refused_by_name(converter):
    with pytest.raises(NotImplementedError, match="'custom_tool_call'"):
        to_chat(converter, [{"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i"}])
    with pytest.raises(NotImplementedError, match="'web_search'"):
        to_chat(converter, "hi", tools=[{"type": "web_search"}])


def test_chat_shaped_messages_are_accepted(converter):
    state = ResponsesConverterState(return_token_id_information=False)
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    converter._format_message({"role": "assistant", "content": "x", "tool_calls": [call]}, state)
    converter._format_message({"role": "tool", "content": "out", "tool_call_id": "c1"}, state)
    assert state.messages == [
        {"role": "assistant", "content": "x", "tool_calls": [call]},
        {"role": "tool", "content": "out", "tool_call_id": "c1"},
    ]


def test_a_subclass_can_write_a_role_of_its_own():
    class WithJudge(ResponsesConverter):
        def _format_message(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
            if m["content"].startswith("principle:"):
                state.flush_assistant()
                state.messages.append({"role": "principle", "content": m["content"].removeprefix("principle:")})
            else:
                super()._format_message(m, state)

    chat = to_chat(
        WithJudge(return_token_id_information=False), [USER, {"role": "user", "content": "principle:be fair"}]
    )
    assert [message["role"] for message in chat["messages"]] == ["user", "principle"]


# Token ids


def test_token_ids_ride_on_the_assistant_message_by_reference(training_converter):
    params = NeMoGymResponseCreateParamsNonStreaming(input=[reasoning("t"), said("x", **TOKENS), USER])
    message = training_converter.responses_to_chat_completion_create_params(params).messages[0]
    assert {name: message[name] for name in TOKENS} == TOKENS
    assert message["prompt_token_ids"] is params.input[1].prompt_token_ids


def test_one_bundle_of_token_ids_does_not_split_a_turn(training_converter):
    chat = to_chat(training_converter, [reasoning("t", **TOKENS), said("x"), CALL])
    assert len(chat["messages"]) == 1


def test_token_ids_stay_behind_unless_asked_for(converter):
    assert to_chat(converter, [said("x", **TOKENS)])["messages"] == [{"role": "assistant", "content": "x"}]


@pytest.mark.parametrize(
    ("message", "carrier"),
    [
        ({"content": "<think>t</think>"}, NeMoGymResponseReasoningItemForTraining),
        ({"content": "<think>t</think>x"}, NeMoGymResponseOutputMessageForTraining),
        (
            {
                "content": "x",
                "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}, "type": "function"}],
            },
            NeMoGymResponseFunctionToolCallForTraining,
        ),
    ],
)
def test_token_ids_of_a_reply_are_on_its_last_item(training_converter, message, carrier):
    raw = NeMoGymChatCompletionMessageForTraining(**message, **TOKENS, routed_experts="abc")
    choice = NeMoGymChoice(finish_reason="stop", index=0, message=raw)
    items = training_converter.postprocess_chat_response(choice)
    assert type(items[-1]) is carrier
    assert items[-1].prompt_token_ids is raw.prompt_token_ids
    assert items[-1].routed_experts == "abc"
    assert not any(hasattr(item, "prompt_token_ids") for item in items[:-1])
    assert type(items[-1]).model_validate(items[-1].model_dump(exclude_unset=True)) == items[-1]


def test_half_a_bundle_of_token_ids_is_an_error(training_converter):
    with pytest.raises(ValueError, match="generation_log_probs missing"):
        training_converter.postprocess_assistant_message_dict(
            {"role": "assistant", "content": "x", "prompt_token_ids": [1], "generation_token_ids": [2]}
        )


# To response


def test_a_reply_with_reasoning_text_and_calls_is_three_kinds_of_items(converter, monkeypatch):
    class FakeUUID:
        hex = "123"

    monkeypatch.setattr(responses_converter, "uuid4", FakeUUID)
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    response = to_response(converter, {"content": "<think>a</think>\n<think>b\nb</think>Hi", "tool_calls": [call]})
    assert [item.model_dump(exclude_unset=True) for item in response.output] == [
        {
            "id": "rs_123",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b\nb"}],
        },
        {
            "id": "msg_123",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "\nHi", "annotations": []}],
        },
        {
            "id": "c1",
            "type": "function_call",
            "call_id": "c1",
            "name": "f",
            "arguments": "{}",
            "status": "completed",
        },
    ]
    assert (response.id, response.created_at, response.object) == ("resp_123", 1, "response")


def test_a_think_block_that_never_closes_is_text(converter):
    (item,) = to_response(converter, {"content": "<think>on and on"}).output
    assert item.content[0].text == "<think>on and on"


def test_without_reasoning_parser_think_tags_are_text():
    (item,) = to_response(
        ResponsesConverter(return_token_id_information=False, uses_reasoning_parser=False),
        {"content": "<think>a</think>b"},
    ).output
    assert item.content[0].text == "<think>a</think>b"


def test_reasoning_in_a_field_of_its_own_is_a_reasoning_item(converter):
    thought, message = to_response(converter, {"content": "b", "reasoning_content": "a"}).output
    assert (thought.summary[0].text, message.content[0].text) == ("a", "b")


def test_reasoning_told_twice_is_kept_once(converter):
    thought, _ = to_response(converter, {"content": "<think>a</think>b", "reasoning_content": "a"}).output
    assert [summary.text for summary in thought.summary] == ["a"]


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_reply_is_an_empty_message(converter, content):
    (item,) = to_response(converter, {"content": content}).output
    assert item.content[0].text == ""


def test_a_refusal_becomes_a_refusal_part(converter):
    (item,) = to_response(converter, {"content": None, "refusal": "no"}).output
    assert [part.model_dump() for part in item.content] == [{"type": "refusal", "refusal": "no"}]


@pytest.mark.parametrize(
    ("finish_reason", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
def test_a_reply_that_was_cut_is_incomplete(converter, finish_reason, reason):
    response = to_response(converter, {"content": "x"}, finish_reason)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", reason)


def test_a_whole_reply_is_completed_and_echoes_the_request(converter):
    response = to_response(converter, {"content": "x"}, "tool_calls")
    assert (response.status, response.incomplete_details) == ("completed", None)
    assert (response.model, response.temperature, response.tool_choice) == ("asked-for", 0.5, "auto")


def test_a_detail_of_usage_that_was_not_reported_is_zero(converter):
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    response = to_response(converter, {"content": "x"}, usage={**usage, "prompt_tokens_details": {"cached_tokens": 4}})
    assert response.usage.model_dump() == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 8,
    }
    assert to_response(converter, {"content": "x"}).usage is None


def test_a_reply_without_choices_is_a_failure_that_shows_what_came_back(converter):
    params = NeMoGymResponseCreateParamsNonStreaming(input="hi")
    reply = NeMoGymChatCompletion.model_validate({**completion({}), "choices": [], "provider_error": "overloaded"})
    with pytest.raises(InvalidModelReply, match="overloaded") as caught:
        converter.chat_completion_to_response(params, reply)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# From chat requests


def test_sampling_parameters_without_a_field_go_into_extra_body(converter):
    chat = to_chat_params(stop=["x"], seed=1, max_completion_tokens=5, metadata={"extra_body": '{"seed":2,"top_k":3}'})
    params = converter.chat_completion_to_responses_create_params(chat)
    assert params.max_output_tokens == 5
    assert params.metadata == {"extra_body": '{"seed":2,"stop":["x"],"top_k":3}'}


def test_tools_and_format_of_a_chat_request_come_back(converter):
    params = NeMoGymResponseCreateParamsNonStreaming(
        input=[USER],
        tools=[{**TOOL, "strict": None}],
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        text={"format": {"type": "json_schema", "name": "n", "schema": {}}},
        reasoning={"effort": "high"},
    )
    chat = converter.responses_to_chat_completion_create_params(params)
    assert converter.chat_completion_to_responses_create_params(chat) == params


def test_several_choices_are_refused(converter):
    with pytest.raises(NotImplementedError, match="n=2"):
        converter.chat_completion_to_responses_create_params(to_chat_params(n=2))


def to_chat_params(**fields: Any) -> Any:
    return NeMoGymChatCompletionCreateParamsNonStreaming(messages=[{"role": "user", "content": "hi"}], **fields)


# Helpers


@pytest.mark.parametrize("first", [said("x"), reasoning("t"), CALL, {"role": "assistant", "content": "x"}])
def test_a_conversation_is_split_where_the_model_begins(first):
    items = [{"role": "system", "content": "s"}, USER, first, USER]
    assert split_responses_input_output_items(items) == (items[:2], items[2:])


def test_splitting_takes_item_objects_too():
    items = [NeMoGymEasyInputMessage(**USER), NeMoGymEasyInputMessage(role="assistant", content="x")]
    assert split_responses_input_output_items(items) == (items[:1], items[1:])
    assert split_responses_input_output_items(items[:1]) == (items[:1], [])


@pytest.mark.parametrize("kind", ["mcp_list_tools", "mcp_approval_request", "web_search_call", "newest_call"])
def test_items_that_only_a_provider_makes_begin_the_models_part(kind):
    items = [USER, {"type": kind}, {"type": "mcp_approval_response"}]
    assert split_responses_input_output_items(items) == (items[:1], items[1:])


def test_what_a_client_adds_does_not_begin_the_models_part():
    items = [USER, *({"type": kind} for kind in sorted(_RESPONSE_NON_BOUNDARY_TYPES))]
    assert split_responses_input_output_items(items) == (items, [])


def test_usage_details_are_read_from_objects_and_dicts():
    usage = {"prompt_tokens_details": {"cached_tokens": 3}}
    assert _usage_detail(usage, "prompt_tokens_details", "cached_tokens") == 3
    assert _usage_detail(usage, "completion_tokens_details", "reasoning_tokens") is None
    assert _usage_detail(None, "prompt_tokens_details", "cached_tokens") is None


def test_think_tags_can_be_written_and_read(converter):
    content = converter._wrap_reasoning_in_think_tags(["a", "b"]) + "c"
    assert content == "<think>a</think><think>b</think>c"
    assert (
        converter._parse_think_tags(content) == converter._extract_reasoning_from_content(content) == (["a", "b"], "c")
    )
