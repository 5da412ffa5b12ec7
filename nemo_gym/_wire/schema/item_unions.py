# SPDX-License-Identifier: Apache-2.0
"""Which class a raw item of a conversation belongs to, and the classes of items about tools that a provider or its
client runs (search, computer use, MCP, shell, custom tools).

Those items pass through this package: required fields and statuses are checked, kinds of action are open. A request
with an item of unknown type or status is refused. A reply with one keeps it as `NeMoGymResponseUnknownItem`, because a
rollout is worth more than a field that a provider added.

Datasets with turns made in advance write some of them as chat messages: an assistant's `tool_calls`, and a message with
role `tool`. They are accepted in a request, kept as given, and converted with the others.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn, get_args

from pydantic import Field

from nemo_gym._wire.schema import items
from nemo_gym._wire.schema.items import ToolOutputPart
from nemo_gym._wire.schema.tokens import has_token_fields, list_missing_token_fields, refuse_partial_tokens
from nemo_gym._wire.schema.wire_model import (
    REFUSED,
    DeferredModel,
    OpenModel,
    OpenObject,
    PickBy,
    get_field,
    raise_refusal,
    text_or_other,
)

__all__ = [
    "NeMoGymChatToolCallsMessage",
    "NeMoGymChatToolMessage",
    "NeMoGymComputerCallOutput",
    "NeMoGymImageGenerationCall",
    "NeMoGymLocalShellCall",
    "NeMoGymLocalShellCallOutput",
    "NeMoGymMcpApprovalResponse",
    "NeMoGymResponseCodeInterpreterToolCall",
    "NeMoGymResponseComputerToolCall",
    "NeMoGymResponseCustomToolCall",
    "NeMoGymResponseCustomToolCallOutput",
    "NeMoGymResponseFileSearchToolCall",
    "NeMoGymResponseFunctionWebSearch",
    "NeMoGymResponseInput",
    "NeMoGymResponseInputItem",
    "NeMoGymResponseMcpApprovalRequest",
    "NeMoGymResponseMcpCall",
    "NeMoGymResponseMcpListTools",
    "NeMoGymResponseOutputItem",
    "NeMoGymResponseUnknownItem",
]

_Steps = Literal["in_progress", "completed", "incomplete"]
_FileSearchStatus = Literal["in_progress", "completed", "incomplete", "searching", "failed"]
_CodeInterpreterStatus = Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]
_ImageStatus = Literal["in_progress", "completed", "generating", "failed"]
_WebSearchStatus = Literal["in_progress", "searching", "completed", "failed"]


class NeMoGymChatToolCallsMessage(DeferredModel):
    """An assistant's turn in the shape of the Chat Completions API, with the tools it called."""

    role: Literal["assistant"]
    tool_calls: list[dict[str, Any]]


class NeMoGymChatToolMessage(DeferredModel):
    """What a tool returned, in the shape of the Chat Completions API."""

    role: Literal["tool"]
    tool_call_id: str
    content: str | list[dict[str, Any]]


class SafetyCheck(DeferredModel):
    id: str
    code: str | None = None
    message: str | None = None


class Screenshot(DeferredModel):
    type: Literal["computer_screenshot"] = "computer_screenshot"
    file_id: str | None = None
    image_url: str | None = None


class FileSearchResult(DeferredModel):
    attributes: dict[str, str | float | bool] | None = None
    file_id: str | None = None
    filename: str | None = None
    score: float | None = None
    text: str | None = None


class ShellAction(DeferredModel):
    command: list[str]
    env: dict[str, str]
    type: Literal["exec"]
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None


class NeMoGymResponseMcpCall(DeferredModel):
    arguments: str
    name: str
    type: Literal["mcp_call"]
    id: str | None = None
    server_label: str | None = None
    approval_request_id: str | None = None
    error: str | None = None
    output: str | None = None
    status: str | None = None


class NeMoGymResponseMcpListTools(DeferredModel):
    type: Literal["mcp_list_tools"]
    id: str | None = None
    server_label: str | None = None
    tools: list[Any] = Field(default_factory=list)
    error: str | None = None


class NeMoGymResponseMcpApprovalRequest(DeferredModel):
    arguments: str
    name: str
    type: Literal["mcp_approval_request"]
    id: str | None = None
    server_label: str | None = None


class NeMoGymMcpApprovalResponse(DeferredModel):
    approval_request_id: str
    approve: bool
    type: Literal["mcp_approval_response"]
    id: str | None = None
    reason: str | None = None


class NeMoGymResponseFileSearchToolCall(DeferredModel):
    id: str
    queries: list[str]
    status: _FileSearchStatus
    type: Literal["file_search_call"]
    results: list[FileSearchResult] | None = None


class NeMoGymResponseFunctionWebSearch(DeferredModel):
    id: str
    action: OpenObject
    status: _WebSearchStatus
    type: Literal["web_search_call"]


class NeMoGymResponseComputerToolCall(DeferredModel):
    id: str
    action: OpenObject
    call_id: str
    pending_safety_checks: list[SafetyCheck]
    status: _Steps
    type: Literal["computer_call"]


class NeMoGymComputerCallOutput(DeferredModel):
    call_id: str
    output: Screenshot
    type: Literal["computer_call_output"]
    id: str | None = None
    acknowledged_safety_checks: list[SafetyCheck] | None = None
    status: _Steps | None = None


class NeMoGymImageGenerationCall(DeferredModel):
    id: str
    status: _ImageStatus
    type: Literal["image_generation_call"]
    result: str | None = None


class NeMoGymResponseCodeInterpreterToolCall(DeferredModel):
    id: str
    container_id: str
    status: _CodeInterpreterStatus
    type: Literal["code_interpreter_call"]
    code: str | None = None
    outputs: list[OpenObject] | None = None


class NeMoGymLocalShellCall(DeferredModel):
    id: str
    action: ShellAction
    call_id: str
    status: _Steps
    type: Literal["local_shell_call"]


class NeMoGymLocalShellCallOutput(DeferredModel):
    id: str
    output: str
    type: Literal["local_shell_call_output"]
    status: _Steps | None = None


class NeMoGymResponseCustomToolCall(DeferredModel):
    call_id: str
    input: str
    name: str
    type: Literal["custom_tool_call"]
    id: str | None = None


class NeMoGymResponseCustomToolCallOutput(DeferredModel):
    call_id: str
    output: Annotated[str | list[ToolOutputPart], text_or_other]
    type: Literal["custom_tool_call_output"]
    id: str | None = None


_KNOWN_STATUSES = {
    "code_interpreter_call": get_args(_CodeInterpreterStatus),
    "computer_call": get_args(_Steps),
    "computer_call_output": get_args(_Steps),
    "local_shell_call": get_args(_Steps),
    "local_shell_call_output": get_args(_Steps),
    "file_search_call": get_args(_FileSearchStatus),
    "image_generation_call": get_args(_ImageStatus),
    "web_search_call": get_args(_WebSearchStatus),
}


class NeMoGymResponseUnknownItem(OpenModel):
    """An item of a reply whose type or status this package does not know: kept as it came."""

    type: str


_EASY_MESSAGE = items.NeMoGymEasyInputMessage.__name__
_MESSAGE = items.NeMoGymMessage.__name__
_CHAT_TOOL_CALLS = NeMoGymChatToolCallsMessage.__name__
_CHAT_TOOL_OUTPUT = NeMoGymChatToolMessage.__name__
_OUTPUT_MESSAGE = items.NeMoGymResponseOutputMessage.__name__
_FUNCTION_CALL = items.NeMoGymResponseFunctionToolCall.__name__
_FUNCTION_CALL_OUTPUT = items.NeMoGymFunctionCallOutput.__name__
_STORED_CALL_OUTPUT = items.NeMoGymResponseFunctionCallOutput.__name__
_REASONING = items.NeMoGymResponseReasoningItem.__name__
_UNKNOWN = NeMoGymResponseUnknownItem.__name__

_TypedItem = (
    items.NeMoGymResponseFunctionToolCall
    | items.NeMoGymFunctionCallOutput
    | items.NeMoGymResponseReasoningItem
    | NeMoGymResponseMcpCall
    | NeMoGymResponseMcpListTools
    | NeMoGymResponseMcpApprovalRequest
    | NeMoGymMcpApprovalResponse
    | NeMoGymResponseFileSearchToolCall
    | NeMoGymResponseFunctionWebSearch
    | NeMoGymResponseComputerToolCall
    | NeMoGymComputerCallOutput
    | NeMoGymImageGenerationCall
    | NeMoGymResponseCodeInterpreterToolCall
    | NeMoGymLocalShellCall
    | NeMoGymLocalShellCallOutput
    | NeMoGymResponseCustomToolCall
    | NeMoGymResponseCustomToolCallOutput
)
_CLASS_OF_TYPE = {get_args(cls.model_fields["type"].annotation)[0]: cls.__name__ for cls in get_args(_TypedItem)}
ITEM_TYPES = ("message", *_CLASS_OF_TYPE)
_TRAINING_TWIN = {plain.__name__: twin.__name__ for plain, twin in items.RESPONSES_TO_TRAIN.items()}


def _pick_input(item: Mapping[str, Any]) -> str:
    item_type = item.get("type")
    if item.get("role") == "assistant" and item.get("tool_calls"):
        name = _CHAT_TOOL_CALLS
    elif item.get("role") == "tool" and "tool_call_id" in item:
        name = _CHAT_TOOL_OUTPUT
    elif item_type == "message":
        name = _pick_message(item)
    elif isinstance(item_type, str):
        name = REFUSED if _has_foreign_status(item) else _CLASS_OF_TYPE.get(item_type, REFUSED)
    else:
        name = _pick_untyped(item) if item_type is None else REFUSED
    return _pick_training_twin(name, item) if has_token_fields(item) else name


def _has_foreign_status(item: Mapping[str, Any]) -> bool:
    """Return whether a hosted item has a status that the API does not have."""
    known = _KNOWN_STATUSES.get(item["type"])
    status = item.get("status")
    return known is not None and status is not None and status not in known


def _pick_output(item: Mapping[str, Any]) -> str:
    item_type = item.get("type")
    if item_type == "message":
        name = _pick_message(item)
    elif isinstance(item_type, str):
        name = _UNKNOWN if _has_foreign_status(item) else _CLASS_OF_TYPE.get(item_type, _UNKNOWN)
        if name == _FUNCTION_CALL_OUTPUT and item.get("id") is not None and item.get("status") is not None:
            name = _STORED_CALL_OUTPUT
    else:
        name = REFUSED
    return _pick_training_twin(name, item) if has_token_fields(item) else name


def _pick_message(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if not isinstance(content, list):
        return _EASY_MESSAGE
    if item.get("role", "assistant") == "assistant":
        is_output = "id" in item and (not content or get_field(content[0], "type") in ("output_text", "refusal"))
        return _OUTPUT_MESSAGE if is_output else _EASY_MESSAGE
    return _MESSAGE if item.get("status") is not None else _EASY_MESSAGE


def _pick_untyped(item: Mapping[str, Any]) -> str:
    if "content" in item and ("role" in item or "id" in item):
        return _pick_message(item)
    if "call_id" in item:
        return _FUNCTION_CALL_OUTPUT if "output" in item else _FUNCTION_CALL
    return _REASONING if "summary" in item else REFUSED


def _pick_training_twin(name: str, item: Mapping[str, Any]) -> str:
    return REFUSED if list_missing_token_fields(item) else _TRAINING_TWIN.get(name, name)


def _refuse_item(item: Any) -> NoReturn:
    if not isinstance(item, Mapping):
        raise_refusal("item_shape", "an item must be an object, not {found}", found=type(item).__name__)
    if has_token_fields(item) and list_missing_token_fields(item):
        refuse_partial_tokens(item)
    if isinstance(item.get("type"), str) and _has_foreign_status(item):
        raise_refusal(
            "item_status",
            "an item of type {type} has status {found}; known: {known}",
            type=repr(item["type"]),
            found=repr(item.get("status")),
            known=", ".join(_KNOWN_STATUSES[item["type"]]),
        )
    known = ", ".join(ITEM_TYPES)
    if item.get("type") is None:
        fields = ", ".join(map(str, item)) or "none"
        raise_refusal(
            "item_type", "an item with fields {fields} needs a 'type'; known: {known}", fields=fields, known=known
        )
    raise_refusal("item_type", "unknown item type {found}; known: {known}", found=repr(item["type"]), known=known)


_Item = (
    items.NeMoGymEasyInputMessage
    | items.NeMoGymMessage
    | items.NeMoGymResponseOutputMessage
    | NeMoGymChatToolCallsMessage
    | NeMoGymChatToolMessage
    | _TypedItem
    | items.NeMoGymEasyInputMessageForTraining
    | items.NeMoGymMessageForTraining
    | items.NeMoGymResponseOutputMessageForTraining
    | items.NeMoGymResponseFunctionToolCallForTraining
    | items.NeMoGymResponseReasoningItemForTraining
    | items.NeMoGymResponseFunctionCallOutput
    | NeMoGymResponseUnknownItem
)

NeMoGymResponseInputItem = Annotated[_Item, PickBy(_pick_input, _refuse_item)]
NeMoGymResponseOutputItem = Annotated[_Item, PickBy(_pick_output, _refuse_item)]
NeMoGymResponseInput = list[NeMoGymResponseInputItem]
