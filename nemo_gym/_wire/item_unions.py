# SPDX-License-Identifier: Apache-2.0
"""Which class a raw item of a conversation belongs to: the unions of all items, for requests and for replies.

A request with an item of unknown type is refused. A reply with one keeps it as `NeMoGymResponseUnknownItem`, because a
rollout is worth more than a field that a provider added.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

from nemo_gym._wire import hosted, items
from nemo_gym._wire.base import REFUSED, OpenModel, PickBy, refusal
from nemo_gym._wire.parts import OUTPUT_PART_TYPES
from nemo_gym._wire.tokens import has_token_fields, missing_token_fields, refuse_partial_tokens


class NeMoGymResponseUnknownItem(OpenModel):
    """An item of a reply whose type this package does not know: kept as it came."""

    type: str


_EASY_MESSAGE = items.NeMoGymEasyInputMessage.__name__
_MESSAGE = items.NeMoGymMessage.__name__
_OUTPUT_MESSAGE = items.NeMoGymResponseOutputMessage.__name__
_FUNCTION_CALL = items.NeMoGymResponseFunctionToolCall.__name__
_FUNCTION_CALL_OUTPUT = items.NeMoGymFunctionCallOutput.__name__
_REASONING = items.NeMoGymResponseReasoningItem.__name__
_UNKNOWN = NeMoGymResponseUnknownItem.__name__

_CLASS_OF_TYPE = {
    "function_call": _FUNCTION_CALL,
    "function_call_output": _FUNCTION_CALL_OUTPUT,
    "reasoning": _REASONING,
    "mcp_call": hosted.NeMoGymResponseMcpCall.__name__,
    "mcp_list_tools": hosted.NeMoGymResponseMcpListTools.__name__,
    "mcp_approval_request": hosted.NeMoGymResponseMcpApprovalRequest.__name__,
    "mcp_approval_response": hosted.NeMoGymMcpApprovalResponse.__name__,
    "file_search_call": hosted.NeMoGymResponseFileSearchToolCall.__name__,
    "web_search_call": hosted.NeMoGymResponseFunctionWebSearch.__name__,
    "computer_call": hosted.NeMoGymResponseComputerToolCall.__name__,
    "computer_call_output": hosted.NeMoGymComputerCallOutput.__name__,
    "image_generation_call": hosted.NeMoGymImageGenerationCall.__name__,
    "code_interpreter_call": hosted.NeMoGymResponseCodeInterpreterToolCall.__name__,
    "local_shell_call": hosted.NeMoGymLocalShellCall.__name__,
    "local_shell_call_output": hosted.NeMoGymLocalShellCallOutput.__name__,
    "custom_tool_call": hosted.NeMoGymResponseCustomToolCall.__name__,
    "custom_tool_call_output": hosted.NeMoGymResponseCustomToolCallOutput.__name__,
}
ITEM_TYPES = ("message", *_CLASS_OF_TYPE)
_TRAINING_TWIN = {plain.__name__: twin.__name__ for plain, twin in items.RESPONSES_TO_TRAIN.items()}


def _pick_input(item: Mapping[str, Any]) -> str:
    item_type = item.get("type")
    if item_type == "message":
        name = _pick_message(item)
    elif isinstance(item_type, str):
        name = REFUSED if _has_foreign_status(item) else _CLASS_OF_TYPE.get(item_type, REFUSED)
    else:
        name = _pick_untyped(item) if item_type is None else REFUSED
    return _with_tokens(name, item) if has_token_fields(item) else name


def _has_foreign_status(item: Mapping[str, Any]) -> bool:
    """Whether a client gives a hosted item a status that the API does not have."""
    known, status = hosted.INPUT_STATUSES.get(item["type"]), item.get("status")
    return known is not None and status is not None and status not in known


def _pick_output(item: Mapping[str, Any]) -> str:
    item_type = item.get("type")
    if item_type == "message":
        name = _pick_message(item)
    else:
        name = _CLASS_OF_TYPE.get(item_type, _UNKNOWN) if isinstance(item_type, str) else REFUSED
    return _with_tokens(name, item) if has_token_fields(item) else name


def _pick_message(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if not isinstance(content, list):
        return _EASY_MESSAGE
    if item.get("role", "assistant") == "assistant":
        is_output = "id" in item and (not content or _type_of_part(content[0]) in OUTPUT_PART_TYPES)
        return _OUTPUT_MESSAGE if is_output else _EASY_MESSAGE
    return _MESSAGE if item.get("status") is not None else _EASY_MESSAGE


def _type_of_part(part: Any) -> Any:
    return part.get("type") if isinstance(part, dict) else getattr(part, "type", None)


def _pick_untyped(item: Mapping[str, Any]) -> str:
    if "content" in item and ("role" in item or "id" in item):
        return _pick_message(item)
    if "call_id" in item:
        return _FUNCTION_CALL_OUTPUT if "output" in item else _FUNCTION_CALL
    return _REASONING if "summary" in item else REFUSED


def _with_tokens(name: str, item: Mapping[str, Any]) -> str:
    return REFUSED if missing_token_fields(item) else _TRAINING_TWIN.get(name, name)


def _refuse(item: Any) -> NoReturn:
    if not isinstance(item, Mapping):
        refusal("item_shape", "an item must be an object, not {found}", found=type(item).__name__)
    if has_token_fields(item) and missing_token_fields(item):
        refuse_partial_tokens(item)
    if isinstance(item.get("type"), str) and _has_foreign_status(item):
        refusal(
            "item_status",
            "an item of type {type} has status {found}; known: {known}",
            type=repr(item["type"]),
            found=repr(item.get("status")),
            known=", ".join(hosted.INPUT_STATUSES[item["type"]]),
        )
    known = ", ".join(ITEM_TYPES)
    if item.get("type") is None:
        fields = ", ".join(map(str, item)) or "none"
        refusal("item_type", "an item with fields {fields} needs a 'type'; known: {known}", fields=fields, known=known)
    refusal("item_type", "unknown item type {found}; known: {known}", found=repr(item["type"]), known=known)


_Item = (
    items.NeMoGymEasyInputMessage
    | items.NeMoGymMessage
    | items.NeMoGymResponseOutputMessage
    | items.NeMoGymResponseFunctionToolCall
    | items.NeMoGymFunctionCallOutput
    | items.NeMoGymResponseReasoningItem
    | items.NeMoGymEasyInputMessageForTraining
    | items.NeMoGymMessageForTraining
    | items.NeMoGymResponseOutputMessageForTraining
    | items.NeMoGymResponseFunctionToolCallForTraining
    | items.NeMoGymResponseReasoningItemForTraining
    | hosted.NeMoGymResponseMcpCall
    | hosted.NeMoGymResponseMcpListTools
    | hosted.NeMoGymResponseMcpApprovalRequest
    | hosted.NeMoGymMcpApprovalResponse
    | hosted.NeMoGymResponseFileSearchToolCall
    | hosted.NeMoGymResponseFunctionWebSearch
    | hosted.NeMoGymResponseComputerToolCall
    | hosted.NeMoGymComputerCallOutput
    | hosted.NeMoGymImageGenerationCall
    | hosted.NeMoGymResponseCodeInterpreterToolCall
    | hosted.NeMoGymLocalShellCall
    | hosted.NeMoGymLocalShellCallOutput
    | hosted.NeMoGymResponseCustomToolCall
    | hosted.NeMoGymResponseCustomToolCallOutput
    | NeMoGymResponseUnknownItem
)

NeMoGymResponseInputItem = Annotated[_Item, PickBy(_pick_input, _refuse)]
NeMoGymResponseOutputItem = Annotated[_Item, PickBy(_pick_output, _refuse)]
NeMoGymResponseInput = list[NeMoGymResponseInputItem]
