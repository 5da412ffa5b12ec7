# SPDX-License-Identifier: Apache-2.0
"""The body of `POST /v1/responses`: what a client may ask of a model.

Settings (tools, reasoning, text, …) stay plain dicts; the conversation becomes item objects. A function or custom tool
with a field that the API does not have is refused, by name: such a field is a dataset's own and would fail at the
provider. The settings of hosted tools are the provider's business and pass through.
"""

from typing import Annotated, Any, Literal, NoReturn, NotRequired

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    with_config,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import TypedDict

from nemo_gym._wire.schema.item_unions import NeMoGymResponseInput
from nemo_gym._wire.schema.wire_model import FastCopyModel, PickByType, raise_refusal, refuse_non_object, text_or_other

__all__ = [
    "NeMoGymFunctionToolParam",
    "NeMoGymResponseCreateParamsNonStreaming",
]

FORBID = ConfigDict(extra="forbid")
ALLOW = ConfigDict(extra="allow")


@with_config(FORBID)
class NeMoGymFunctionToolParam(TypedDict):
    name: str
    parameters: dict[str, Any] | None
    strict: bool | None
    type: Literal["function"]
    description: NotRequired[str | None]


def build_function_tool(
    name: str, *, description: str | None, parameters: dict[str, Any] | None, strict: bool | None
) -> dict[str, Any]:
    """Return a function tool as the API expects it: with parameters and strictness, even where they are unknown."""
    described = {} if description is None else {"description": description}
    return {"type": "function", "name": name, **described, "parameters": parameters, "strict": strict}


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


PlainHostedType = Literal[
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "image_generation",
    "local_shell",
]


@with_config(ALLOW)
class PlainHostedToolParam(TypedDict):
    """A hosted tool that needs no setting."""

    type: PlainHostedType


def _require_text_or_list(value: Any) -> Any:
    """Refuse anything else with one error for each of the two, as clients expect of a union."""
    if isinstance(value, str | list | tuple):
        return value
    errors = [
        InitErrorDetails(type="string_type", loc=("str",), input=value),
        InitErrorDetails(type="list_type", loc=("list",), input=value),
    ]
    raise ValidationError.from_exception_data("input", errors)


def _refuse_tool(known: str, tool: Any) -> NoReturn:
    if not isinstance(tool, dict):
        refuse_non_object("tool", tool)
    name = repr(tool.get("name"))
    found = repr(tool.get("type"))
    raise_refusal(
        "tool_type", "tool {name} has unknown type {found}; known: {known}", name=name, found=found, known=known
    )


def _name_tool_in_errors(tool: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Say which tool an error is about: a position in a list of fifty does not help anyone."""
    try:
        return validate(tool)
    except ValidationError as error:
        name = repr(tool.get("name") if isinstance(tool, dict) else None)
        lines = []
        for line in error.errors(include_url=False):
            context = {"problem": line["msg"], "tool": name}
            named = PydanticCustomError(line["type"], "{problem} (tool {tool})", context)
            lines.append(InitErrorDetails(type=named, loc=line["loc"], input=line["input"]))
        raise ValidationError.from_exception_data(error.title, lines) from None


NeMoGymToolParam = Annotated[
    NeMoGymFunctionToolParam
    | CustomToolParam
    | FileSearchToolParam
    | ComputerToolParam
    | McpToolParam
    | CodeInterpreterToolParam
    | PlainHostedToolParam,
    PickByType(_refuse_tool),
    WrapValidator(_name_tool_in_errors),
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
    type: Literal["file_search", "computer_use_preview", "code_interpreter", PlainHostedType]


def _refuse_choice(known: str, choice: Any) -> NoReturn:
    found = repr(choice.get("type")) if isinstance(choice, dict) else type(choice).__name__
    raise_refusal("tool_choice_type", "unknown tool_choice type {found}; known: {known}", found=found, known=known)


NeMoGymToolChoiceParam = Annotated[
    Literal["none", "auto", "required"]
    | Annotated[NamedToolChoice | McpToolChoice | AllowedToolsChoice | HostedToolChoice, PickByType(_refuse_choice)],
    text_or_other,
]


ServiceTier = Literal["auto", "default", "flex", "scale", "priority"]
Metadata = dict[str, str]


# Efforts, summaries and verbosities are open: providers add levels faster than any list here could follow.
@with_config(FORBID)
class ReasoningParam(TypedDict, total=False):
    effort: str | None
    generate_summary: str | None
    summary: str | None


@with_config(FORBID)
class TextFormatParam(TypedDict):
    type: Literal["text", "json_object"]


@with_config(FORBID)
class JSONSchemaFormatParam(TypedDict):
    type: Literal["json_schema"]
    name: str
    schema: dict[str, Any]
    description: NotRequired[str | None]
    strict: NotRequired[bool | None]


@with_config(FORBID)
class TextParam(TypedDict, total=False):
    format: Annotated[TextFormatParam | JSONSchemaFormatParam, Field(discriminator="type")]
    verbosity: str | None


@with_config(FORBID)
class PromptParam(TypedDict):
    id: str
    variables: NotRequired[dict[str, Any] | None]
    version: NotRequired[str | None]


class NeMoGymResponseCreateParamsNonStreaming(FastCopyModel):
    """A request for one reply. There is no `seed`: give `metadata={"extra_body": '{"seed": 1}'}` (JSON text)."""

    model_config = ConfigDict(extra="forbid")

    background: bool | None = None
    include: list[str] | None = None
    input: Annotated[str | NeMoGymResponseInput, text_or_other, BeforeValidator(_require_text_or_list)]
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: Metadata | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: PromptParam | None = None
    reasoning: ReasoningParam | None = None
    service_tier: ServiceTier | None = None
    store: bool | None = None
    temperature: float | None = None
    text: TextParam | None = None
    tool_choice: NeMoGymToolChoiceParam = "auto"
    tools: list[NeMoGymToolParam] = Field(default_factory=list)
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    stream: Literal[False] | None = None
