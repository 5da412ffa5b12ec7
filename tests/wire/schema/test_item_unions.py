# SPDX-License-Identifier: Apache-2.0
"""Which class a raw item becomes, and what is said about one that becomes none."""

from typing import Any, Union

import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import BaseModel, TypeAdapter, ValidationError

from nemo_gym._wire.schema import item_unions, items
from nemo_gym._wire.schema.item_unions import (
    ITEM_TYPES,
    NeMoGymResponseInputItem,
    NeMoGymResponseOutputItem,
    NeMoGymResponseUnknownItem,
)
from nemo_gym._wire.schema.items import RESPONSES_TO_TRAIN
from tests.wire import strategies as wire

INPUT: TypeAdapter[Any] = TypeAdapter(NeMoGymResponseInputItem)
OUTPUT: TypeAdapter[Any] = TypeAdapter(NeMoGymResponseOutputItem)
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT_IN = {"type": "input_text", "text": "hi"}
TEXT_OUT = {"type": "output_text", "text": "hi", "annotations": []}

SHAPES: list[tuple[dict[str, Any], type[BaseModel]]] = [
    ({"role": "user", "content": "hi"}, items.NeMoGymEasyInputMessage),
    ({"role": "assistant", "content": "hi"}, items.NeMoGymEasyInputMessage),
    ({"role": "user", "content": "hi", "type": "message"}, items.NeMoGymEasyInputMessage),
    ({"role": "user", "content": "hi", "type": "message", "status": "completed"}, items.NeMoGymEasyInputMessage),
    ({"role": "user", "content": [TEXT_IN]}, items.NeMoGymEasyInputMessage),
    ({"role": "user", "content": [TEXT_IN], "type": "message"}, items.NeMoGymEasyInputMessage),
    ({"role": "user", "content": [TEXT_IN], "status": "completed"}, items.NeMoGymMessage),
    ({"role": "system", "content": [TEXT_IN], "status": "completed", "type": "message"}, items.NeMoGymMessage),
    ({"id": "m", "role": "user", "content": [TEXT_IN], "status": "completed", "type": "message"}, items.NeMoGymMessage),
    (
        {"id": "m", "role": "assistant", "content": [TEXT_OUT], "status": "completed", "type": "message"},
        items.NeMoGymResponseOutputMessage,
    ),
    ({"id": "m", "role": "assistant", "content": [], "type": "message"}, items.NeMoGymResponseOutputMessage),
    ({"id": "m", "role": "assistant", "content": [TEXT_OUT]}, items.NeMoGymResponseOutputMessage),
    ({"id": "m", "content": [TEXT_OUT]}, items.NeMoGymResponseOutputMessage),
    ({"role": "assistant", "content": []}, items.NeMoGymEasyInputMessage),
    ({"role": "assistant", "content": [TEXT_OUT]}, items.NeMoGymEasyInputMessage),
    ({"role": "assistant", "content": [TEXT_IN], "id": "m", "status": "completed"}, items.NeMoGymEasyInputMessage),
    ({"id": "m", "role": "assistant", "content": "hi", "type": "message"}, items.NeMoGymEasyInputMessage),
    ({"call_id": "c", "name": "f", "arguments": "{}"}, items.NeMoGymResponseFunctionToolCall),
    ({"call_id": "c", "output": "ok"}, items.NeMoGymFunctionCallOutput),
    ({"id": "r", "summary": []}, items.NeMoGymResponseReasoningItem),
    ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, items.NeMoGymResponseFunctionToolCall),
    ({"type": "function_call_output", "call_id": "c", "output": "ok"}, items.NeMoGymFunctionCallOutput),
    ({"type": "reasoning", "id": "r", "summary": []}, items.NeMoGymResponseReasoningItem),
    ({"type": "mcp_approval_request", "name": "f", "arguments": "{}"}, item_unions.NeMoGymResponseMcpApprovalRequest),
]


@pytest.mark.parametrize(("item", "cls"), SHAPES)
def test_the_shape_of_a_raw_item_decides_its_class(item, cls):
    assert type(INPUT.validate_python(item)) is cls


@pytest.mark.parametrize(("item", "cls"), [shape for shape in SHAPES if "type" in shape[0]])
def test_a_typed_item_of_a_reply_becomes_the_same_class_as_in_a_request(item, cls):
    assert type(OUTPUT.validate_python(item)) is cls


# What trying all classes (pydantic's smart union) finds, at twenty times the cost.
_TRYING_ALL: TypeAdapter[Any] = TypeAdapter(
    Union[
        items.NeMoGymEasyInputMessage,
        items.NeMoGymMessage,
        items.NeMoGymResponseOutputMessage,
        items.NeMoGymResponseFunctionToolCall,
        items.NeMoGymFunctionCallOutput,
        items.NeMoGymResponseReasoningItem,
        *RESPONSES_TO_TRAIN.values(),
    ]
)


@pytest.mark.parametrize("item", [shape[0] for shape in SHAPES[:-1]])
def test_a_shape_becomes_the_class_that_trying_all_classes_finds(item):
    assert type(INPUT.validate_python(item)) is type(_TRYING_ALL.validate_python(item))


@quick
@given(wire.core_input_items | wire.nemo_gym_training_items)
def test_any_item_becomes_the_class_that_trying_all_classes_finds(item):
    assert INPUT.validate_python(item) == _TRYING_ALL.validate_python(item)


@quick
@given(wire.nemo_gym_training_items)
def test_an_item_with_token_fields_becomes_the_training_twin_and_keeps_them(item):
    validated = INPUT.validate_python(item)
    assert type(validated) in RESPONSES_TO_TRAIN.values()
    assert validated.model_dump(exclude_unset=True) == item


def test_token_fields_that_are_null_count_as_absent():
    item = INPUT.validate_python({"role": "user", "content": "hi", **dict.fromkeys(TOKENS)})
    assert type(item) is items.NeMoGymEasyInputMessage


@pytest.mark.parametrize("adapter", [INPUT, OUTPUT])
@pytest.mark.parametrize("left_out", list(TOKENS))
def test_token_fields_come_complete_or_not_at_all(adapter, left_out):
    fields = {name: value for name, value in TOKENS.items() if name != left_out}
    with pytest.raises(ValueError, match=f"token metadata must come complete: {left_out} missing"):
        adapter.validate_python({"type": "function_call", "call_id": "c", "name": "f", "arguments": "", **fields})


def test_routed_experts_alone_are_incomplete_too():
    with pytest.raises(ValueError, match="generation_log_probs missing beside routed_experts"):
        INPUT.validate_python({"role": "user", "content": "hi", "routed_experts": "x"})


@pytest.mark.parametrize("cls", [items.NeMoGymEasyInputMessage, items.NeMoGymResponseOutputMessageForTraining])
def test_an_instance_keeps_its_identity(cls):
    known = {"id": "m", "role": "assistant", "content": [], **TOKENS}
    item = cls(**known)
    assert INPUT.validate_python(item) is item
    assert OUTPUT.validate_python(item) is item


def test_an_instance_of_an_authors_subclass_keeps_its_identity_and_its_fields():
    class Scored(items.NeMoGymResponseOutputMessage):
        score: float

    item = Scored(id="m", content=[], score=0.5)
    assert OUTPUT.validate_python(item) is item
    assert OUTPUT.dump_python(item)["score"] == 0.5


def test_a_request_with_an_unknown_item_type_is_refused_with_one_error_that_lists_the_known_ones():
    with pytest.raises(ValidationError) as refused:
        INPUT.validate_python({"type": "telepathy", "id": "t"})
    (error,) = refused.value.errors()
    assert error["msg"] == f"unknown item type 'telepathy'; known: {', '.join(ITEM_TYPES)}"


def test_a_reply_with_an_unknown_item_type_keeps_the_item():
    raw = {"type": "telepathy", "id": "t", "thought": {"deep": True}}
    item = OUTPUT.validate_python(raw)
    assert type(item) is NeMoGymResponseUnknownItem
    assert item.thought == {"deep": True}
    assert item.model_dump() == raw


def test_an_item_of_a_reply_needs_a_type():
    with pytest.raises(ValidationError, match="fields role, content needs a 'type'"):
        OUTPUT.validate_python({"role": "assistant", "content": "hi"})


@pytest.mark.parametrize("adapter", [INPUT, OUTPUT])
@pytest.mark.parametrize(
    "junk", [None, 3, "text", [], {}, {"type": None}, {"type": 3}, {"type": ["message"]}, {"x": 1}]
)
def test_junk_is_refused_with_one_error(adapter, junk):
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python(junk)
    assert refused.value.error_count() == 1


def test_a_bad_field_is_reported_once_with_its_place():
    with pytest.raises(ValidationError) as refused:
        INPUT.validate_python({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}})
    (error,) = refused.value.errors()
    assert error["loc"] == ("NeMoGymResponseFunctionToolCall", "arguments")


def test_an_unknown_content_part_is_reported_with_the_known_ones():
    with pytest.raises(ValidationError, match="unknown content part type: 'smell'; known: input_text, input_image"):
        INPUT.validate_python({"role": "user", "content": [{"type": "smell"}]})


def test_a_content_part_reads_by_attribute_and_by_key():
    (part,) = INPUT.validate_python({"role": "user", "content": [TEXT_IN]}).content
    assert type(part) is items.NeMoGymResponseInputText
    assert part.text == part["text"] == part.get("text") == "hi"
    assert "text" in part
    assert "nothing" not in part
    assert part.get("nothing", 7) == 7
    with pytest.raises(KeyError):
        part["nothing"]


@pytest.mark.parametrize("sources", [{}, {"video_url": "u", "video": "v"}, {"video_url": {"url": "u"}, "video": "v"}])
def test_a_video_part_has_exactly_one_source(sources):
    with pytest.raises(ValidationError, match="exactly one of 'video_url' and 'video'"):
        items.NeMoGymInputVideoPart(**sources)


@pytest.mark.parametrize("key", ["video_url", "video"])
@pytest.mark.parametrize("source", ["file:///a.mp4", {"url": "file:///a.mp4", "fps": 2}])
def test_the_source_of_a_video_is_a_text_or_an_object_and_is_kept_as_given(key, source):
    part = items.NeMoGymInputVideoPart.model_validate({"type": "input_video", key: source})
    assert part.url == "file:///a.mp4"
    assert part.model_dump(exclude_unset=True) == {"type": "input_video", key: source}


@pytest.mark.parametrize("source", ["", " ", {"url": " "}])
def test_a_video_without_address_is_refused(source):
    with pytest.raises(ValidationError, match="blank"):
        items.NeMoGymInputVideoPart(video_url=source)


_STEPS = "in_progress completed incomplete"
STATUSES = [
    (item_unions.NeMoGymResponseCodeInterpreterToolCall, f"{_STEPS} interpreting failed"),
    (item_unions.NeMoGymResponseComputerToolCall, _STEPS),
    (item_unions.NeMoGymComputerCallOutput, _STEPS),
    (item_unions.NeMoGymLocalShellCall, _STEPS),
    (item_unions.NeMoGymLocalShellCallOutput, _STEPS),
    (item_unions.NeMoGymResponseFileSearchToolCall, f"{_STEPS} searching failed"),
    (item_unions.NeMoGymImageGenerationCall, "in_progress completed generating failed"),
    (item_unions.NeMoGymResponseFunctionWebSearch, "in_progress searching completed failed"),
]

CHAT_TURNS = [
    {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "assistant", "content": "let me look", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
    {"role": "assistant", "type": "message", "content": None, "tool_calls": [{"id": "c"}], "refusal": None},
    {"role": "tool", "tool_call_id": "c", "name": "f", "content": "7"},
    {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "7"}]},
]


@pytest.mark.parametrize("turn", CHAT_TURNS)
def test_a_chat_shaped_turn_of_a_tool_is_accepted_in_a_request_and_kept_as_given(turn):
    item = INPUT.validate_python(turn)
    assert item.model_dump() == turn
    assert INPUT.validate_python(item) is item


@pytest.mark.parametrize("turn", [{"role": "tool", "content": "7"}, {"role": "assistant", "tool_calls": "f()"}])
def test_a_chat_shaped_turn_that_lacks_its_call_is_refused(turn):
    with pytest.raises(ValidationError):
        INPUT.validate_python(turn)


@pytest.mark.parametrize(("cls", "statuses"), STATUSES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_schema_of_a_hosted_item_lists_its_statuses(cls, statuses):
    found = cls.model_json_schema()["properties"]["status"]
    options = found.get("enum") or found["anyOf"][0]["enum"]
    assert set(options) == set(statuses.split())


def test_a_reply_with_an_unknown_status_keeps_the_item():
    raw = {"type": "web_search_call", "id": "w", "action": {"type": "search"}, "status": "dreaming"}
    item = OUTPUT.validate_python(raw)
    assert isinstance(item, item_unions.NeMoGymResponseUnknownItem)
    assert item.model_dump() == raw


def test_a_reasoning_item_drops_its_status_and_keeps_other_unknown_fields():
    raw = {"type": "reasoning", "id": "r", "summary": [], "status": "completed", "format": "anthropic"}
    item = OUTPUT.validate_python(raw)
    assert item.model_dump(exclude_unset=True) == {"type": "reasoning", "id": "r", "summary": [], "format": "anthropic"}
    assert raw["status"] == "completed", "the caller's dict is not touched"


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_the_unions_have_a_json_schema(mode):
    schema = INPUT.json_schema(mode=mode)
    assert len(schema["oneOf"]) == 29


def test_a_tool_output_of_a_response_has_its_own_class_where_it_has_an_id_and_a_status():
    stored = {"type": "function_call_output", "id": "fc", "call_id": "c", "output": "ok", "status": "completed"}
    assert type(OUTPUT.validate_python(stored)) is items.NeMoGymResponseFunctionCallOutput
    assert type(INPUT.validate_python(stored)) is items.NeMoGymFunctionCallOutput
    for name in ("id", "status"):
        bare = {key: value for key, value in stored.items() if key != name}
        assert type(OUTPUT.validate_python(bare)) is items.NeMoGymFunctionCallOutput


def test_each_training_twin_is_a_subclass_of_its_plain_class():
    for plain, twin in RESPONSES_TO_TRAIN.items():
        assert items.training_variant_of(plain) is twin
        assert issubclass(twin, plain)


def test_a_class_without_training_twin_is_named():
    with pytest.raises(NotImplementedError, match="'NeMoGymFunctionCallOutput' has no training variant"):
        items.training_variant_of(items.NeMoGymFunctionCallOutput)
