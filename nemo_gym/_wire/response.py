# SPDX-License-Identifier: Apache-2.0
"""A model's reply in the Responses dialect.

Lenient where a provider speaks: unknown fields are kept at every level, and vocabularies (statuses, reasons, error
codes) are open, because refusing a reply loses a rollout.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from nemo_gym._wire.base import (
    OpenModel,
    OpenObject,
    PickBy,
    SdkTwin,
    dump_sdk_object,
    refuse_non_object,
    text_or_other,
)
from nemo_gym._wire.item_unions import NeMoGymResponseInput, NeMoGymResponseOutputItem
from nemo_gym._wire.items import NeMoGymEasyInputMessage, NeMoGymResponseOutputMessage, NeMoGymResponseOutputText
from nemo_gym._wire.tokens import NeMoGymResponseUsage

__all__ = [
    "NeMoGymResponse",
]


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
