# SPDX-License-Identifier: Apache-2.0
"""The body of `POST /v1/chat/completions`: messages, tools and settings are plain dicts after validation.

Fields that the API does not have are dropped, as the endpoint's clients expect.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from nemo_gym._wire.schema.responses_request import Metadata, ServiceTier
from nemo_gym._wire.schema.tokens import (
    TokenIDLogProbTypedDictMixin,
    has_token_fields,
    list_missing_token_fields,
    refuse_partial_tokens,
)
from nemo_gym._wire.schema.wire_model import REFUSED, PickBy, raise_refusal, refuse_non_object, text_or_other

__all__ = [
    "NeMoGymChatCompletionAssistantMessageForTrainingParam",
    "NeMoGymChatCompletionAssistantMessageParam",
    "NeMoGymChatCompletionContentPartFileParam",
    "NeMoGymChatCompletionContentPartImageParam",
    "NeMoGymChatCompletionContentPartInputAudioParam",
    "NeMoGymChatCompletionContentPartTextParam",
    "NeMoGymChatCompletionContentPartVideoUrlParam",
    "NeMoGymChatCompletionCreateParamsNonStreaming",
    "NeMoGymChatCompletionCustomToolParam",
    "NeMoGymChatCompletionDeveloperMessageParam",
    "NeMoGymChatCompletionMessageCustomToolCallParam",
    "NeMoGymChatCompletionMessageParam",
    "NeMoGymChatCompletionMessageToolCallFunctionParam",
    "NeMoGymChatCompletionMessageToolCallParam",
    "NeMoGymChatCompletionSystemMessageParam",
    "NeMoGymChatCompletionToolMessageParam",
    "NeMoGymChatCompletionToolParam",
    "NeMoGymChatCompletionUserMessageParam",
    "NeMoGymFunctionDefinition",
]


class NeMoGymChatCompletionContentPartTextParam(TypedDict):
    text: str
    type: Literal["text"]


class NeMoGymChatCompletionContentPartRefusalParam(TypedDict):
    refusal: str
    type: Literal["refusal"]


class ImageURL(TypedDict):
    url: str
    detail: NotRequired[Literal["auto", "low", "high"]]


class NeMoGymChatCompletionContentPartImageParam(TypedDict):
    image_url: ImageURL
    type: Literal["image_url"]


class InputAudio(TypedDict):
    data: str
    format: Literal["wav", "mp3"]


class NeMoGymChatCompletionContentPartInputAudioParam(TypedDict):
    input_audio: InputAudio
    type: Literal["input_audio"]


class FileSource(TypedDict, total=False):
    file_data: str
    file_id: str
    filename: str


class NeMoGymChatCompletionContentPartFileParam(TypedDict):
    file: FileSource
    type: Literal["file"]


class VideoURL(TypedDict):
    url: str


class NeMoGymChatCompletionContentPartVideoUrlParam(TypedDict):
    video_url: VideoURL
    type: Literal["video_url"]


TextPart = NeMoGymChatCompletionContentPartTextParam
AssistantPart = Annotated[
    NeMoGymChatCompletionContentPartTextParam | NeMoGymChatCompletionContentPartRefusalParam,
    Field(discriminator="type"),
]
UserPart = Annotated[
    NeMoGymChatCompletionContentPartTextParam
    | NeMoGymChatCompletionContentPartImageParam
    | NeMoGymChatCompletionContentPartInputAudioParam
    | NeMoGymChatCompletionContentPartFileParam
    | NeMoGymChatCompletionContentPartVideoUrlParam,
    Field(discriminator="type"),
]


class NeMoGymChatCompletionUserMessageParam(TypedDict):
    content: Annotated[str | list[UserPart], text_or_other]
    role: Literal["user"]
    name: NotRequired[str]


class NeMoGymChatCompletionSystemMessageParam(TypedDict):
    content: Annotated[str | list[TextPart], text_or_other]
    role: Literal["system"]
    name: NotRequired[str]


class NeMoGymChatCompletionDeveloperMessageParam(TypedDict):
    content: Annotated[str | list[TextPart], text_or_other]
    role: Literal["developer"]
    name: NotRequired[str]


class NeMoGymChatCompletionToolMessageParam(TypedDict):
    content: Annotated[str | list[TextPart], text_or_other]
    role: Literal["tool"]
    tool_call_id: str


class NeMoGymChatCompletionMessageToolCallFunctionParam(TypedDict):
    arguments: str
    name: str


class NeMoGymChatCompletionMessageToolCallParam(TypedDict):
    id: str
    function: NeMoGymChatCompletionMessageToolCallFunctionParam
    type: Literal["function"]


class CustomToolInputParam(TypedDict):
    input: str
    name: str


class NeMoGymChatCompletionMessageCustomToolCallParam(TypedDict):
    id: str
    custom: CustomToolInputParam
    type: Literal["custom"]


class AudioReference(TypedDict):
    id: str


class NeMoGymChatCompletionAssistantMessageParam(TypedDict):
    role: Literal["assistant"]
    audio: NotRequired[AudioReference | None]
    content: NotRequired[Annotated[str | list[AssistantPart] | None, text_or_other]]
    function_call: NotRequired[NeMoGymChatCompletionMessageToolCallFunctionParam | None]
    name: NotRequired[str]
    refusal: NotRequired[str | None]
    tool_calls: NotRequired[
        list[
            Annotated[
                NeMoGymChatCompletionMessageToolCallParam | NeMoGymChatCompletionMessageCustomToolCallParam,
                Field(discriminator="type"),
            ]
        ]
        | None  # what clients send back that dump a whole reply
    ]
    # Not OpenAI's, but what reasoning models behind this dialect emit, and want back in a later turn.
    reasoning_content: NotRequired[str | None]
    reasoning: NotRequired[str | None]


class NeMoGymChatCompletionAssistantMessageForTrainingParam(
    NeMoGymChatCompletionAssistantMessageParam, TokenIDLogProbTypedDictMixin
):
    pass


class NeMoGymChatCompletionFunctionMessageParam(TypedDict):
    content: str | None
    name: str
    role: Literal["function"]


_CLASS_OF_ROLE = {
    "user": NeMoGymChatCompletionUserMessageParam.__name__,
    "system": NeMoGymChatCompletionSystemMessageParam.__name__,
    "developer": NeMoGymChatCompletionDeveloperMessageParam.__name__,
    "tool": NeMoGymChatCompletionToolMessageParam.__name__,
    "assistant": NeMoGymChatCompletionAssistantMessageParam.__name__,
    "function": NeMoGymChatCompletionFunctionMessageParam.__name__,
}
_TRAINING_ASSISTANT = NeMoGymChatCompletionAssistantMessageForTrainingParam.__name__


def _pick_message(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    if has_token_fields(message):
        if list_missing_token_fields(message) or role != "assistant":
            return REFUSED
        return _TRAINING_ASSISTANT
    if not isinstance(role, str):
        return REFUSED
    return _CLASS_OF_ROLE.get(role, REFUSED)


def _refuse_message(message: Any) -> NoReturn:
    if not isinstance(message, Mapping):
        refuse_non_object("message", message)
    if has_token_fields(message) and list_missing_token_fields(message):
        refuse_partial_tokens(message)
    found = repr(message.get("role"))
    known = ", ".join(_CLASS_OF_ROLE)
    if has_token_fields(message):
        raise_refusal(
            "token_metadata_role", "token metadata belongs on assistant messages, not on role {found}", found=found
        )
    raise_refusal("message_role", "unknown message role {found}; known: {known}", found=found, known=known)


NeMoGymChatCompletionMessageParam = Annotated[
    NeMoGymChatCompletionDeveloperMessageParam
    | NeMoGymChatCompletionSystemMessageParam
    | NeMoGymChatCompletionUserMessageParam
    | NeMoGymChatCompletionAssistantMessageParam
    | NeMoGymChatCompletionAssistantMessageForTrainingParam
    | NeMoGymChatCompletionToolMessageParam
    | NeMoGymChatCompletionFunctionMessageParam,
    PickBy(_pick_message, _refuse_message),
]


class NeMoGymFunctionDefinition(TypedDict):
    name: str
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, Any] | None]
    strict: NotRequired[bool | None]


class NeMoGymChatCompletionToolParam(TypedDict):
    function: NeMoGymFunctionDefinition
    type: Literal["function"]


class CustomToolDefinition(TypedDict):
    name: str
    description: NotRequired[str]
    format: NotRequired[dict[str, Any]]


class NeMoGymChatCompletionCustomToolParam(TypedDict):
    custom: CustomToolDefinition
    type: Literal["custom"]


ChatToolParam = Annotated[
    NeMoGymChatCompletionToolParam | NeMoGymChatCompletionCustomToolParam, Field(discriminator="type")
]


class NameOnly(TypedDict):
    name: str


class ChatFunctionToolChoice(TypedDict):
    function: NameOnly
    type: Literal["function"]


class ChatCustomToolChoice(TypedDict):
    custom: NameOnly
    type: Literal["custom"]


class ChatAllowedTools(TypedDict):
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


class ChatAllowedToolsChoice(TypedDict):
    allowed_tools: ChatAllowedTools
    type: Literal["allowed_tools"]


ChatToolChoiceParam = Annotated[
    Literal["none", "auto", "required"]
    | Annotated[ChatFunctionToolChoice | ChatCustomToolChoice | ChatAllowedToolsChoice, Field(discriminator="type")],
    text_or_other,
]


class StreamOptions(TypedDict, total=False):
    include_obfuscation: bool
    include_usage: bool


class NeMoGymChatCompletionCreateParamsNonStreaming(BaseModel):
    """A request for one chat completion."""

    # Every server imports it and few use it: its schema, the largest of all, is built on first use.
    model_config = ConfigDict(defer_build=True)

    messages: list[NeMoGymChatCompletionMessageParam]
    model: str | None = None
    audio: dict[str, Any] | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, int] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: Metadata | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    n: int | None = None
    parallel_tool_calls: bool = True
    prediction: dict[str, Any] | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    seed: int | None = None
    service_tier: ServiceTier | None = None
    stop: Annotated[str | list[str] | None, text_or_other] = None
    store: bool | None = None
    stream: Literal[False] | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    tool_choice: ChatToolChoiceParam | None = None
    tools: list[ChatToolParam] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    web_search_options: dict[str, Any] | None = None
