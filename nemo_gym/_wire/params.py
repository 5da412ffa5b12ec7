# SPDX-License-Identifier: Apache-2.0
"""The body of `POST /v1/responses`: what a client may ask of a model.

Settings (tools, reasoning, text, …) stay plain dicts; the conversation becomes item objects.
"""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from nemo_gym._wire.base import CopiedFast, text_or_other
from nemo_gym._wire.item_unions import NeMoGymResponseInput
from nemo_gym._wire.tools import FORBID, NeMoGymToolChoiceParam, NeMoGymToolParam

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


class NeMoGymResponseCreateParamsNonStreaming(CopiedFast):
    """A request for one reply. There is no `seed`: give `metadata={"extra_body": '{"seed": 1}'}` (JSON text)."""

    model_config = ConfigDict(extra="forbid")

    background: bool | None = None
    include: list[str] | None = None
    input: Annotated[str | NeMoGymResponseInput, text_or_other]
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
