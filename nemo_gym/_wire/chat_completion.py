# SPDX-License-Identifier: Apache-2.0
"""A model's reply in the Chat Completions dialect: unknown fields are kept at every level.

A reply without choices is valid here; whoever needs a choice says so with the endpoint's name at hand.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, NoReturn

from nemo_gym._wire.base import REFUSED, DeferredModel, OpenObject, PickBy, SdkTwin, refuse_non_object
from nemo_gym._wire.items import TokenLogprob
from nemo_gym._wire.tokens import (
    TokenIDLogProbMixin,
    has_token_fields,
    list_missing_token_fields,
    refuse_partial_tokens,
)

__all__ = [
    "NeMoGymChatCompletion",
    "NeMoGymChatCompletionMessage",
    "NeMoGymChatCompletionMessageCustomToolCall",
    "NeMoGymChatCompletionMessageForTraining",
    "NeMoGymChatCompletionMessageToolCall",
    "NeMoGymChoice",
    "NeMoGymFunction",
]


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
    return (NeMoGymChatCompletionMessageCustomToolCall if is_custom else NeMoGymChatCompletionMessageToolCall).__name__


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
