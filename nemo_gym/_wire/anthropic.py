# SPDX-License-Identifier: Apache-2.0
"""The body of `POST /v1/messages`, as far as a Responses request can express it.

Fields that are not here (caching hints, thinking budgets, service tiers …) are dropped, as they ask for what no model
server here offers. A content block or tool of an unknown kind is refused, because the model would miss it.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from nemo_gym._wire.base import WireModel, text_or_other


class TextBlock(WireModel):
    type: Literal["text"]
    text: str


class Base64Source(WireModel):
    type: Literal["base64"]
    media_type: str
    data: str

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


class URLSource(WireModel):
    type: Literal["url"]
    url: str


class PlainTextSource(WireModel):
    type: Literal["text"]
    data: str


class ImageBlock(WireModel):
    type: Literal["image"]
    source: Annotated[Base64Source | URLSource, Field(discriminator="type")]


class DocumentBlock(WireModel):
    type: Literal["document"]
    source: Annotated[Base64Source | URLSource | PlainTextSource, Field(discriminator="type")]
    title: str | None = None


class ToolUseBlock(WireModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ThinkingBlock(WireModel):
    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(WireModel):
    type: Literal["redacted_thinking"]
    data: str


ShownBlock = TextBlock | ImageBlock | DocumentBlock


class ToolResultBlock(WireModel):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[str | list[Annotated[ShownBlock, Field(discriminator="type")]] | None, text_or_other] = None
    is_error: bool = False


Block = Annotated[
    ShownBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock, Field(discriminator="type")
]


class AnthropicMessage(WireModel):
    role: Literal["user", "assistant", "system"]
    content: Annotated[str | list[Block], text_or_other]


class AnthropicTool(WireModel):
    """A tool that the client runs."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    type: Literal["custom"] | None = None


class AnthropicToolChoice(WireModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class AnthropicMetadata(WireModel):
    user_id: str | None = None


class AnthropicOutputFormat(WireModel):
    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class AnthropicOutputConfig(WireModel):
    effort: str | None = None
    format: AnthropicOutputFormat | None = None


class AnthropicMessagesRequest(WireModel):
    messages: list[AnthropicMessage]
    model: str | None = None
    max_tokens: int | None = None
    metadata: AnthropicMetadata | None = None
    output_config: AnthropicOutputConfig | None = None
    stop_sequences: list[str] | None = None
    stream: bool = False
    system: Annotated[str | list[TextBlock] | None, text_or_other] = None
    temperature: float | None = None
    tool_choice: AnthropicToolChoice | None = None
    tools: list[AnthropicTool] | None = None
    top_k: int | None = None
    top_p: float | None = None
