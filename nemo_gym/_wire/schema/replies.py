# SPDX-License-Identifier: Apache-2.0
"""A model's reply in the Responses and in the Chat Completions dialect.

Lenient where a provider speaks: unknown fields are kept at every level, and vocabularies (statuses, reasons, error
codes) are open, because refusing a reply loses a rollout. A completion without choices is valid here, too;
`format_errors` says whether a reply contains an answer.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BeforeValidator

from nemo_gym._wire.schema.item_unions import NeMoGymResponseInput, NeMoGymResponseOutputItem
from nemo_gym._wire.schema.items import (
    NeMoGymEasyInputMessage,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
    TokenLogprob,
)
from nemo_gym._wire.schema.tokens import (
    NeMoGymResponseUsage,
    TokenIDLogProbMixin,
    has_token_fields,
    list_missing_token_fields,
    refuse_partial_tokens,
)
from nemo_gym._wire.schema.wire_model import (
    REFUSED,
    DeferredModel,
    OpenModel,
    OpenObject,
    PickBy,
    SdkTwin,
    dump_sdk_object,
    refuse_non_object,
    text_or_other,
)

__all__ = [
    "NeMoGymChatCompletion",
    "NeMoGymChatCompletionMessage",
    "NeMoGymChatCompletionMessageCustomToolCall",
    "NeMoGymChatCompletionMessageForTraining",
    "NeMoGymChatCompletionMessageToolCall",
    "NeMoGymChoice",
    "NeMoGymFunction",
    "NeMoGymResponse",
]

# --- Responses --------------------------------------------------------------------------------------------------------


class ResponseError(SdkTwin):
    code: str | None = None
    message: str


class IncompleteDetails(SdkTwin):
    reason: str | None = None


class Reasoning(SdkTwin):
    effort: str | None = None
    generate_summary: str | None = None
    summary: str | None = None


class TextConfig(SdkTwin):
    format: OpenObject | None = None
    verbosity: str | None = None


class ResponsePrompt(SdkTwin):
    id: str
    variables: dict[str, Any] | None = None
    version: str | None = None


class Conversation(SdkTwin):
    id: str


class FunctionTool(SdkTwin):
    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    type: Literal["function"]
    description: str | None = None


def _pick_tool(tool: Mapping[str, Any]) -> str:
    return FunctionTool.__name__ if tool.get("type") == "function" else OpenObject.__name__


ResponseTool = Annotated[
    FunctionTool | OpenObject, PickBy(_pick_tool, partial(refuse_non_object, "tool")), BeforeValidator(dump_sdk_object)
]


class NeMoGymResponse(OpenModel):
    id: str
    created_at: float
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: Annotated[str | NeMoGymResponseInput | None, text_or_other] = None
    metadata: dict[str, Any] | None = None
    model: str
    object: Literal["response"]
    output: list[NeMoGymResponseOutputItem]
    parallel_tool_calls: bool
    temperature: float | None = None
    tool_choice: Annotated[str | OpenObject, text_or_other]
    tools: list[ResponseTool]
    top_p: float | None = None
    background: bool | None = None
    conversation: Conversation | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    previous_response_id: str | None = None
    prompt: ResponsePrompt | None = None
    prompt_cache_key: str | None = None
    reasoning: Reasoning | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    status: str | None = None
    text: TextConfig | None = None
    top_logprobs: int | None = None
    truncation: str | None = None
    usage: NeMoGymResponseUsage | None = None
    user: str | None = None

    @property
    def output_text(self) -> str:
        """The model's `output_text` parts as one text; reasoning and tool calls are not part of it."""
        messages = (
            item for item in self.output if isinstance(item, NeMoGymResponseOutputMessage | NeMoGymEasyInputMessage)
        )
        parts = (part for message in messages if not isinstance(message.content, str) for part in message.content)
        return "".join(part.text for part in parts if isinstance(part, NeMoGymResponseOutputText))


# --- Chat Completions ------------------------------------------------------------------------------------------------


class NeMoGymFunction(DeferredModel, SdkTwin):
    arguments: str
    name: str


class CustomToolInput(DeferredModel, SdkTwin):
    input: str
    name: str


class NeMoGymChatCompletionMessageToolCall(DeferredModel, SdkTwin):
    id: str
    function: NeMoGymFunction
    type: Literal["function"] = "function"


class NeMoGymChatCompletionMessageCustomToolCall(DeferredModel, SdkTwin):
    id: str
    custom: CustomToolInput
    type: Literal["custom"] = "custom"


def _pick_tool_call(call: Mapping[str, Any]) -> str:
    is_custom = call.get("type") == "custom"
    if is_custom:
        return NeMoGymChatCompletionMessageCustomToolCall.__name__
    return NeMoGymChatCompletionMessageToolCall.__name__


ChatToolCall = Annotated[
    NeMoGymChatCompletionMessageToolCall | NeMoGymChatCompletionMessageCustomToolCall,
    PickBy(_pick_tool_call, partial(refuse_non_object, "tool call")),
]


class ChatAudio(DeferredModel, SdkTwin):
    id: str
    data: str
    expires_at: int
    transcript: str


class NeMoGymChatCompletionMessage(DeferredModel):
    content: str | None = None
    refusal: str | None = None
    role: Literal["assistant"] = "assistant"
    annotations: list[OpenObject] | None = None
    audio: ChatAudio | None = None
    function_call: NeMoGymFunction | None = None
    tool_calls: list[ChatToolCall] | None = None


class NeMoGymChatCompletionMessageForTraining(NeMoGymChatCompletionMessage, TokenIDLogProbMixin):
    pass


def _pick_message(message: Mapping[str, Any]) -> str:
    if not has_token_fields(message):
        return NeMoGymChatCompletionMessage.__name__
    return REFUSED if list_missing_token_fields(message) else NeMoGymChatCompletionMessageForTraining.__name__


def _refuse_message(message: Any) -> NoReturn:
    if isinstance(message, Mapping):
        refuse_partial_tokens(message)
    refuse_non_object("message", message)


class ChoiceLogprobs(DeferredModel, SdkTwin):
    content: list[TokenLogprob] | None = None
    refusal: list[TokenLogprob] | None = None


class NeMoGymChoice(DeferredModel):
    finish_reason: str | None
    index: int
    logprobs: ChoiceLogprobs | None = None
    message: Annotated[
        NeMoGymChatCompletionMessage | NeMoGymChatCompletionMessageForTraining, PickBy(_pick_message, _refuse_message)
    ]


class CompletionTokensDetails(DeferredModel, SdkTwin):
    accepted_prediction_tokens: int | None = None
    audio_tokens: int | None = None
    reasoning_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class PromptTokensDetails(DeferredModel, SdkTwin):
    audio_tokens: int | None = None
    cached_tokens: int | None = None


class CompletionUsage(DeferredModel, SdkTwin):
    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails | None = None
    prompt_tokens_details: PromptTokensDetails | None = None


class NeMoGymChatCompletion(DeferredModel):
    id: str
    choices: list[NeMoGymChoice]
    created: int
    model: str
    object: Literal["chat.completion"]
    service_tier: str | None = None
    system_fingerprint: str | None = None
    usage: CompletionUsage | None = None
