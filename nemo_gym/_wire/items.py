# SPDX-License-Identifier: Apache-2.0
"""The items of a conversation that agents, verifiers and trainers handle by name, and their `…ForTraining` twins.

Calls to tools that a provider hosts are in `hosted`; how a raw item finds its class is in `item_unions`.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, model_validator

from nemo_gym._wire.base import OpenModel, SelfDescribing, WireModel, text_or_other
from nemo_gym._wire.parts import EasyPart, InputPart, NeMoGymContent, ToolOutputPart
from nemo_gym._wire.tokens import TokenIDLogProbMixin

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
    def _without_status(cls, value: Any) -> Any:
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
    """The twin of an item class that also carries token ids and log-probs."""
    try:
        return RESPONSES_TO_TRAIN[cls]
    except KeyError:
        known = ", ".join(item.__name__ for item in RESPONSES_TO_TRAIN)
        raise NotImplementedError(f"{cls.__name__!r} has no training variant; classes that have one: {known}") from None
