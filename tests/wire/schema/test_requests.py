# SPDX-License-Identifier: Apache-2.0
"""What a client may send, and what it is told when it may not."""

from typing import Any

import pytest
from pydantic import ValidationError

from nemo_gym._wire.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym._wire.schema.items import NeMoGymEasyInputMessage
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming

TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True}


def params(**fields: Any) -> NeMoGymResponseCreateParamsNonStreaming:
    return NeMoGymResponseCreateParamsNonStreaming(**{"input": "hi", **fields})


def only_error(**fields: Any) -> Any:
    with pytest.raises(ValidationError) as refused:
        params(**fields)
    (error,) = refused.value.errors()
    return error


def test_the_defaults_are_those_of_the_contract():
    assert {name: value for name, value in params().model_dump().items() if value is not None} == {
        "input": "hi",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def test_a_dump_without_unset_fields_is_what_the_client_sent():
    sent = {"input": [{"role": "user", "content": "hi"}], "temperature": 0.5}
    assert NeMoGymResponseCreateParamsNonStreaming.model_validate(sent).model_dump(exclude_unset=True) == sent


def test_an_unknown_field_is_refused():
    assert only_error(seed=1)["loc"] == ("seed",)


def test_settings_and_tools_stay_plain_dicts():
    body = params(tools=[TOOL], reasoning={"effort": "low"}, text={"format": {"type": "text"}}, metadata={"a": "b"})
    assert body.tools[0]["name"] == "get_weather"
    assert [type(value) for value in (body.tools[0], body.reasoning, body.text, body.metadata)] == [dict] * 4


def test_a_reasoning_effort_that_is_new_to_us_passes():
    assert params(reasoning={"effort": "xhigh"}).reasoning == {"effort": "xhigh"}


def test_a_field_that_tools_do_not_have_is_refused_naming_tool_and_field():
    error = only_error(tools=[TOOL, {**TOOL, "name": "query", "database": "db"}])
    assert error["loc"] == ("tools", 1, "NeMoGymFunctionToolParam", "database")
    assert error["type"] == "extra_forbidden"
    assert error["msg"] == "Extra inputs are not permitted (tool 'query')"


def test_a_tool_that_lacks_a_field_is_named_too():
    tool = {"type": "function", "name": "query", "strict": True}
    assert only_error(tools=[tool])["msg"] == "Field required (tool 'query')"


def test_a_tool_of_unknown_type_is_refused_with_the_known_types():
    message = only_error(tools=[{"type": "namespace", "name": "files"}])["msg"]
    assert message.startswith("tool 'files' has unknown type 'namespace'; known: function, custom, file_search")


@pytest.mark.parametrize("tool", [None, 3, "web_search", [], {}, {"type": ["function"]}])
def test_a_tool_that_is_junk_is_refused_with_one_error(tool):
    assert only_error(tools=[tool])["loc"][:2] == ("tools", 0)


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "search_context_size": "low", "a_setting_of_tomorrow": 1},
        {"type": "web_search_preview"},
        {"type": "file_search", "vector_store_ids": ["v"]},
        {"type": "mcp", "server_label": "s", "server_url": "u"},
        {"type": "computer_use_preview", "display_height": 1, "display_width": 1, "environment": "linux"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "image_generation", "quality": "low"},
        {"type": "local_shell"},
        {"type": "custom", "name": "c"},
    ],
)
def test_hosted_tools_pass_with_their_settings(tool):
    assert params(tools=[tool]).model_dump(exclude_unset=True)["tools"] == [tool]


@pytest.mark.parametrize("choice", ["maybe", {"type": "function"}, {"type": "telepathy"}, {}, 3, None])
def test_a_bad_tool_choice_is_refused_with_one_error(choice):
    assert only_error(tool_choice=choice)["loc"][0] == "tool_choice"


def test_an_item_that_is_none_is_refused_with_one_error():
    assert only_error(input=[{"role": "king", "content": "hi"}])["loc"][0] == "input"


@pytest.mark.parametrize("bad", [None, 3, {"role": "user"}])
def test_an_input_that_is_neither_text_nor_list_is_refused_with_an_error_for_each(bad):
    with pytest.raises(ValidationError) as refused:
        NeMoGymResponseCreateParamsNonStreaming(input=bad)
    assert [error["type"] for error in refused.value.errors()] == ["string_type", "list_type"]
    assert {error["loc"][0] for error in refused.value.errors()} == {"input"}


def test_metadata_values_are_texts():
    assert only_error(metadata={"extra_body": {"seed": 1}})["loc"] == ("metadata", "extra_body")


@pytest.mark.parametrize(("field", "value"), [("stream", True), ("service_tier", "gold"), ("truncation", "some")])
def test_closed_vocabularies_are_closed(field, value):
    assert only_error(**{field: value})["loc"] == (field,)


def test_a_copy_with_other_input_dumps_whatever_it_was_given():
    body = params().model_copy(
        update={"input": [NeMoGymEasyInputMessage(role="user", content="a"), {"role": "user", "content": "b"}]}
    )
    assert body.model_dump(exclude_unset=True)["input"] == [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]


def chat(*messages: Any, **fields: Any) -> NeMoGymChatCompletionCreateParamsNonStreaming:
    return NeMoGymChatCompletionCreateParamsNonStreaming(messages=list(messages), **fields)


def test_chat_messages_stay_plain_dicts_and_lose_unknown_fields():
    body = chat({"role": "user", "content": "hi", "mood": "good"}, top_k=5)
    assert body.messages == [{"role": "user", "content": "hi"}]
    assert body.model_dump(exclude_unset=True) == {"messages": [{"role": "user", "content": "hi"}]}


def test_chat_params_need_no_model_and_allow_parallel_tool_calls():
    assert chat().model is None
    assert chat().parallel_tool_calls is True


def test_an_assistant_message_keeps_its_reasoning():
    message = {"role": "assistant", "content": None, "reasoning_content": "hm"}
    assert chat(message).messages == [message]


TOKENS = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.1]}


def test_token_fields_stay_on_an_assistant_message():
    message = {"role": "assistant", "content": "hi", **TOKENS}
    assert chat(message).messages == [message]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "king", "content": "hi"}, "unknown message role 'king'; known: user, system"),
        ({"content": "hi"}, "unknown message role None"),
        ({"role": ["user"], "content": "hi"}, "unknown message role"),
        ("hi", "a message must be an object, not str"),
        ({"role": "assistant", "prompt_token_ids": [1]}, "token metadata must come complete"),
        ({"role": "user", "content": "hi", **TOKENS}, "token metadata belongs on assistant messages"),
    ],
)
def test_a_bad_chat_message_is_refused_with_one_error(message, complaint):
    with pytest.raises(ValidationError, match=complaint) as refused:
        chat(message)
    assert refused.value.error_count() == 1


def test_an_assistant_message_may_say_that_it_has_no_tool_calls():
    messages = [{"role": "assistant", "content": "hi", "tool_calls": None}, {"role": "user", "content": "a"}]
    assert NeMoGymChatCompletionCreateParamsNonStreaming(messages=messages).messages[0]["tool_calls"] is None
