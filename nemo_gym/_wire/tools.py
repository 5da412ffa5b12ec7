# SPDX-License-Identifier: Apache-2.0
"""Tools and tool choices of a request, in the Responses dialect: plain dicts after validation.

A function or custom tool with a field that the API does not have is refused, by name: such a field is a dataset's own
and would fail at the provider. The settings of hosted tools are the provider's business and pass through.
"""

from typing import Annotated, Any, Literal, NoReturn, NotRequired

from pydantic import ConfigDict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator, with_config
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from typing_extensions import TypedDict

from nemo_gym._wire.base import REFUSED, PickBy, refusal, text_or_other

FORBID = ConfigDict(extra="forbid")
ALLOW = ConfigDict(extra="allow")


@with_config(FORBID)
class NeMoGymFunctionToolParam(TypedDict):
    name: str
    parameters: dict[str, Any] | None
    strict: bool | None
    type: Literal["function"]
    description: NotRequired[str | None]


@with_config(FORBID)
class TextFormat(TypedDict):
    type: Literal["text"]


@with_config(FORBID)
class GrammarFormat(TypedDict):
    type: Literal["grammar"]
    definition: str
    syntax: Literal["lark", "regex"]


@with_config(FORBID)
class CustomToolParam(TypedDict):
    name: str
    type: Literal["custom"]
    description: NotRequired[str | None]
    format: NotRequired[TextFormat | GrammarFormat]


@with_config(ALLOW)
class FileSearchToolParam(TypedDict):
    type: Literal["file_search"]
    vector_store_ids: list[str]


@with_config(ALLOW)
class ComputerToolParam(TypedDict):
    type: Literal["computer_use_preview"]
    display_height: int
    display_width: int
    environment: str


@with_config(ALLOW)
class McpToolParam(TypedDict):
    type: Literal["mcp"]
    server_label: str


@with_config(ALLOW)
class CodeInterpreterToolParam(TypedDict):
    type: Literal["code_interpreter"]
    container: str | dict[str, Any]


@with_config(ALLOW)
class PlainHostedToolParam(TypedDict):
    """A hosted tool that needs no setting."""

    type: str


_PLAIN_HOSTED = (
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "image_generation",
    "local_shell",
)
_CLASS_OF_TYPE = {
    "function": NeMoGymFunctionToolParam.__name__,
    "custom": CustomToolParam.__name__,
    "file_search": FileSearchToolParam.__name__,
    "computer_use_preview": ComputerToolParam.__name__,
    "mcp": McpToolParam.__name__,
    "code_interpreter": CodeInterpreterToolParam.__name__,
    **dict.fromkeys(_PLAIN_HOSTED, PlainHostedToolParam.__name__),
}


def _pick(tool: dict[str, Any]) -> str:
    tool_type = tool.get("type")
    return _CLASS_OF_TYPE.get(tool_type, REFUSED) if isinstance(tool_type, str) else REFUSED


def _refuse(tool: Any) -> NoReturn:
    if not isinstance(tool, dict):
        refusal("tool_shape", "a tool must be an object, not {found}", found=type(tool).__name__)
    refusal(
        "tool_type",
        "tool {name} has unknown type {found}; known: {known}",
        name=repr(tool.get("name")),
        found=repr(tool.get("type")),
        known=", ".join(_CLASS_OF_TYPE),
    )


def _naming_the_tool(tool: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Say which tool an error is about: a position in a list of fifty tells nobody."""
    try:
        return validate(tool)
    except ValidationError as error:
        name = tool.get("name") if isinstance(tool, dict) else None
        raise ValidationError.from_exception_data(
            error.title, [_naming(repr(name), line) for line in error.errors(include_url=False)]
        ) from None


def _naming(tool: str, line: ErrorDetails) -> InitErrorDetails:
    named = PydanticCustomError(line["type"], "{problem} (tool {tool})", {"problem": line["msg"], "tool": tool})
    return InitErrorDetails(type=named, loc=line["loc"], input=line["input"])


NeMoGymToolParam = Annotated[
    NeMoGymFunctionToolParam
    | CustomToolParam
    | FileSearchToolParam
    | ComputerToolParam
    | McpToolParam
    | CodeInterpreterToolParam
    | PlainHostedToolParam,
    PickBy(_pick, _refuse),
    WrapValidator(_naming_the_tool),
]


@with_config(FORBID)
class NamedToolChoice(TypedDict):
    type: Literal["function", "custom"]
    name: str


@with_config(FORBID)
class McpToolChoice(TypedDict):
    type: Literal["mcp"]
    server_label: str
    name: NotRequired[str | None]


@with_config(FORBID)
class AllowedToolsChoice(TypedDict):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


@with_config(FORBID)
class HostedToolChoice(TypedDict):
    type: str


_CHOICE_OF_TYPE = {
    "function": NamedToolChoice.__name__,
    "custom": NamedToolChoice.__name__,
    "mcp": McpToolChoice.__name__,
    "allowed_tools": AllowedToolsChoice.__name__,
    **dict.fromkeys(
        ("file_search", "computer_use_preview", "code_interpreter", *_PLAIN_HOSTED), HostedToolChoice.__name__
    ),
}


def _pick_choice(choice: dict[str, Any]) -> str:
    choice_type = choice.get("type")
    return _CHOICE_OF_TYPE.get(choice_type, REFUSED) if isinstance(choice_type, str) else REFUSED


def _refuse_choice(choice: Any) -> NoReturn:
    found = repr(choice.get("type")) if isinstance(choice, dict) else type(choice).__name__
    known = ", ".join(_CHOICE_OF_TYPE)
    refusal("tool_choice_type", "unknown tool_choice type {found}; known: {known}", found=found, known=known)


NeMoGymToolChoiceParam = Annotated[
    Literal["none", "auto", "required"]
    | Annotated[
        NamedToolChoice | McpToolChoice | AllowedToolsChoice | HostedToolChoice, PickBy(_pick_choice, _refuse_choice)
    ],
    text_or_other,
]
