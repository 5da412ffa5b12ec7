# SPDX-License-Identifier: Apache-2.0
"""The items of a conversation that agents, verifiers and trainers handle by name, their `…ForTraining` twins, and the
parts that message contents and tool outputs are made of, in the Responses dialect.

Calls to tools that a provider hosts, and how a raw item finds its class, are in `item_unions`.
"""

from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from nemo_gym._wire.schema.tokens import TokenIDLogProbMixin
from nemo_gym._wire.schema.wire_model import (
    KeyedPart,
    OpenModel,
    OpenObject,
    PickByType,
    SdkTwin,
    SelfDescribing,
    WireModel,
    raise_refusal,
    text_or_other,
)

__all__ = [
    "RESPONSES_TO_TRAIN",
    "NeMoGymContent",
    "NeMoGymEasyInputMessage",
    "NeMoGymEasyInputMessageForTraining",
    "NeMoGymFunctionCallOutput",
    "NeMoGymInputVideoPart",
    "NeMoGymMessage",
    "NeMoGymMessageForTraining",
    "NeMoGymReasoningText",
    "NeMoGymResponseFunctionCallOutput",
    "NeMoGymResponseFunctionToolCall",
    "NeMoGymResponseFunctionToolCallForTraining",
    "NeMoGymResponseInputFile",
    "NeMoGymResponseInputImage",
    "NeMoGymResponseInputText",
    "NeMoGymResponseOutputMessage",
    "NeMoGymResponseOutputMessageForTraining",
    "NeMoGymResponseOutputRefusal",
    "NeMoGymResponseOutputText",
    "NeMoGymResponseReasoningItem",
    "NeMoGymResponseReasoningItemForTraining",
    "NeMoGymSummary",
    "training_variant_of",
]


class NeMoGymResponseInputText(KeyedPart):
    text: str
    type: Literal["input_text"] = "input_text"


class NeMoGymResponseInputImage(KeyedPart):
    type: Literal["input_image"] = "input_image"
    detail: Literal["low", "high", "auto"] | None = "auto"
    file_id: str | None = None
    image_url: str | None = None


class NeMoGymResponseInputFile(KeyedPart):
    type: Literal["input_file"] = "input_file"
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None


class _DumpedAsGiven(BaseModel):
    """A part whose dumps hold the keys that it was given and no defaults."""

    @model_serializer(mode="wrap")
    def _dump_given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        given = self.model_fields_set | {"type"}
        return {key: value for key, value in dump(self).items() if key in given}


class ToolOutputImage(_DumpedAsGiven, NeMoGymResponseInputImage):
    """An image that a tool returned."""


class ToolOutputFile(_DumpedAsGiven, NeMoGymResponseInputFile):
    """A file that a tool returned."""


class VideoSource(OpenModel):
    url: str


class NeMoGymInputVideoPart(KeyedPart):
    """A video by address (`video_url`) or by content (`video`), each a text or an object with a `url`."""

    type: Literal["input_video"] = "input_video"
    video_url: Annotated[str | VideoSource | None, text_or_other] = None
    video: Annotated[str | VideoSource | None, text_or_other] = None

    @model_validator(mode="after")
    def _require_one_source(self) -> Self:
        if (self.video_url is None) == (self.video is None):
            raise_refusal("video_source", "an input_video part needs exactly one of 'video_url' and 'video'")
        if not self.url.strip():
            raise_refusal("video_source", "the address of an input_video part is blank")
        return self

    @property
    def url(self) -> str:
        """Return the address or the content, however it was given."""
        source = self.video_url
        if source is None:
            source = self.video
        if isinstance(source, VideoSource):
            return source.url
        return source or ""


class TopLogprob(SdkTwin):
    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob] = Field(default_factory=list)


class NeMoGymResponseOutputText(SelfDescribing, KeyedPart):
    text: str
    annotations: list[OpenObject] = Field(default_factory=list)
    type: Literal["output_text"] = "output_text"
    logprobs: list[TokenLogprob] | None = None


class NeMoGymResponseOutputRefusal(SelfDescribing, KeyedPart):
    refusal: str
    type: Literal["refusal"] = "refusal"


def _refuse_part(known: str, part: Any) -> NoReturn:
    found = f"none in a {type(part).__name__}"
    if isinstance(part, dict) and "type" in part:
        found = repr(part["type"])
    raise_refusal("content_part_type", "unknown content part type: {found}; known: {known}", found=found, known=known)


_pick_part = PickByType(_refuse_part)

NeMoGymContent = Annotated[NeMoGymResponseOutputText | NeMoGymResponseOutputRefusal, _pick_part]

_AnyInputPart = NeMoGymResponseInputText | NeMoGymResponseInputImage | NeMoGymResponseInputFile | NeMoGymInputVideoPart
InputPart = Annotated[_AnyInputPart, _pick_part]

# An assistant turn that a client writes without item id is an easy message, so it may hold what an assistant says.
EasyPart = Annotated[_AnyInputPart | NeMoGymResponseOutputText | NeMoGymResponseOutputRefusal, _pick_part]

ToolOutputPart = Annotated[
    NeMoGymResponseInputText | NeMoGymResponseInputImage | NeMoGymResponseInputFile | ToolOutputImage | ToolOutputFile,
    _pick_part,
]


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class NeMoGymEasyInputMessage(WireModel):
    """A message as clients write it: a role and a text or parts."""

    content: Annotated[str | list[EasyPart], text_or_other]
    role: Literal["user", "assistant", "system", "developer"]
    type: Literal["message"] = "message"


class NeMoGymMessage(SelfDescribing, WireModel):
    """A message to the model that carries a status."""

    content: list[InputPart]
    role: Literal["user", "system", "developer"]
    status: ItemStatus = "completed"
    type: Literal["message"] = "message"


class NeMoGymResponseOutputMessage(SelfDescribing, OpenModel):
    """What the model said."""

    _kind_fields: ClassVar[frozenset[str]] = frozenset({"type", "role", "status"})

    id: str
    content: list[NeMoGymContent]
    role: Literal["assistant"] = "assistant"
    status: ItemStatus = "completed"
    type: Literal["message"] = "message"


class NeMoGymResponseFunctionToolCall(SelfDescribing, OpenModel):
    """The model asks for a tool; `arguments` is the JSON text it wrote, valid or not."""

    arguments: str
    call_id: str
    name: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: ItemStatus | None = None


class NeMoGymFunctionCallOutput(SelfDescribing, WireModel):
    """What a tool returned to the call `call_id`."""

    call_id: str
    output: Annotated[str | list[ToolOutputPart], text_or_other]
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: ItemStatus | None = None


class NeMoGymResponseFunctionCallOutput(NeMoGymFunctionCallOutput):
    """The same as an item of a response, where it has its own id and status."""

    id: str
    status: ItemStatus


class NeMoGymSummary(SelfDescribing, OpenModel):
    text: str
    type: Literal["summary_text"] = "summary_text"


class NeMoGymReasoningText(SelfDescribing, OpenModel):
    text: str
    type: Literal["reasoning_text"] = "reasoning_text"


class NeMoGymResponseReasoningItem(SelfDescribing, OpenModel):
    """What the model thought."""

    id: str
    summary: list[NeMoGymSummary]
    type: Literal["reasoning"] = "reasoning"
    encrypted_content: str | None = None
    content: list[NeMoGymReasoningText] | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_status(cls, value: Any) -> Any:
        # Providers reply with a status, but refuse one on a reasoning item that comes back as input.
        if type(value) is dict and "status" in value:
            return {key: kept for key, kept in value.items() if key != "status"}
        return value


class NeMoGymEasyInputMessageForTraining(NeMoGymEasyInputMessage, TokenIDLogProbMixin):
    pass


class NeMoGymMessageForTraining(NeMoGymMessage, TokenIDLogProbMixin):
    pass


class NeMoGymResponseOutputMessageForTraining(NeMoGymResponseOutputMessage, TokenIDLogProbMixin):
    pass


class NeMoGymResponseFunctionToolCallForTraining(NeMoGymResponseFunctionToolCall, TokenIDLogProbMixin):
    pass


class NeMoGymResponseReasoningItemForTraining(NeMoGymResponseReasoningItem, TokenIDLogProbMixin):
    pass


RESPONSES_TO_TRAIN: dict[type[BaseModel], type[BaseModel]] = {
    NeMoGymEasyInputMessage: NeMoGymEasyInputMessageForTraining,
    NeMoGymMessage: NeMoGymMessageForTraining,
    NeMoGymResponseOutputMessage: NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseFunctionToolCall: NeMoGymResponseFunctionToolCallForTraining,
    NeMoGymResponseReasoningItem: NeMoGymResponseReasoningItemForTraining,
}


def training_variant_of(cls: type[BaseModel]) -> type[BaseModel]:
    """Return the twin of an item class that also carries token ids and log-probs."""
    try:
        return RESPONSES_TO_TRAIN[cls]
    except KeyError:
        known = ", ".join(item.__name__ for item in RESPONSES_TO_TRAIN)
        raise NotImplementedError(f"{cls.__name__!r} has no training variant; classes that have one: {known}") from None
