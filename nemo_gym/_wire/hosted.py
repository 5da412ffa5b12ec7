# SPDX-License-Identifier: Apache-2.0
"""Items about tools that a provider or its client runs (search, computer use, MCP, shell, custom tools).

They pass through this package: required fields are checked, vocabularies (statuses, kinds of action) are open. Only a
client's own items must have a status of the API (`INPUT_STATUSES`).
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from nemo_gym._wire.base import OpenObject, SeldomModel, text_or_other
from nemo_gym._wire.parts import ToolOutputPart


class SafetyCheck(SeldomModel):
    id: str
    code: str | None = None
    message: str | None = None


class Screenshot(SeldomModel):
    type: Literal["computer_screenshot"] = "computer_screenshot"
    file_id: str | None = None
    image_url: str | None = None


class FileSearchResult(SeldomModel):
    attributes: dict[str, str | float | bool] | None = None
    file_id: str | None = None
    filename: str | None = None
    score: float | None = None
    text: str | None = None


class ShellAction(SeldomModel):
    command: list[str]
    env: dict[str, str]
    type: Literal["exec"]
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None


class NeMoGymResponseMcpCall(SeldomModel):
    arguments: str
    name: str
    type: Literal["mcp_call"]
    id: str | None = None
    server_label: str | None = None
    approval_request_id: str | None = None
    error: str | None = None
    output: str | None = None
    status: str | None = None


class NeMoGymResponseMcpListTools(SeldomModel):
    type: Literal["mcp_list_tools"]
    id: str | None = None
    server_label: str | None = None
    tools: list[Any] = Field(default_factory=list)
    error: str | None = None


class NeMoGymResponseMcpApprovalRequest(SeldomModel):
    arguments: str
    name: str
    type: Literal["mcp_approval_request"]
    id: str | None = None
    server_label: str | None = None


class NeMoGymMcpApprovalResponse(SeldomModel):
    approval_request_id: str
    approve: bool
    type: Literal["mcp_approval_response"]
    id: str | None = None
    reason: str | None = None


class NeMoGymResponseFileSearchToolCall(SeldomModel):
    id: str
    queries: list[str]
    status: str
    type: Literal["file_search_call"]
    results: list[FileSearchResult] | None = None


class NeMoGymResponseFunctionWebSearch(SeldomModel):
    id: str
    action: OpenObject
    status: str
    type: Literal["web_search_call"]


class NeMoGymResponseComputerToolCall(SeldomModel):
    id: str
    action: OpenObject
    call_id: str
    pending_safety_checks: list[SafetyCheck]
    status: str
    type: Literal["computer_call"]


class NeMoGymComputerCallOutput(SeldomModel):
    call_id: str
    output: Screenshot
    type: Literal["computer_call_output"]
    id: str | None = None
    acknowledged_safety_checks: list[SafetyCheck] | None = None
    status: str | None = None


class NeMoGymImageGenerationCall(SeldomModel):
    id: str
    status: str
    type: Literal["image_generation_call"]
    result: str | None = None


class NeMoGymResponseCodeInterpreterToolCall(SeldomModel):
    id: str
    container_id: str
    status: str
    type: Literal["code_interpreter_call"]
    code: str | None = None
    outputs: list[OpenObject] | None = None


class NeMoGymLocalShellCall(SeldomModel):
    id: str
    action: ShellAction
    call_id: str
    status: str
    type: Literal["local_shell_call"]


class NeMoGymLocalShellCallOutput(SeldomModel):
    id: str
    output: str
    type: Literal["local_shell_call_output"]
    status: str | None = None


class NeMoGymResponseCustomToolCall(SeldomModel):
    call_id: str
    input: str
    name: str
    type: Literal["custom_tool_call"]
    id: str | None = None


class NeMoGymResponseCustomToolCallOutput(SeldomModel):
    call_id: str
    output: Annotated[str | list[ToolOutputPart], text_or_other]
    type: Literal["custom_tool_call_output"]
    id: str | None = None


_STEPS = ("in_progress", "completed", "incomplete")
INPUT_STATUSES = {
    "code_interpreter_call": (*_STEPS, "interpreting", "failed"),
    "computer_call": _STEPS,
    "computer_call_output": _STEPS,
    "local_shell_call": _STEPS,
    "local_shell_call_output": _STEPS,
    "file_search_call": (*_STEPS, "searching", "failed"),
    "image_generation_call": ("in_progress", "completed", "generating", "failed"),
    "web_search_call": ("in_progress", "searching", "completed", "failed"),
}
"""The statuses that an item of a type may have in a request."""
