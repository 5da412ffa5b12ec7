# SPDX-License-Identifier: Apache-2.0
import re
from abc import abstractmethod
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from nemo_gym.base_resources_server import (
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    ReverifyMode,
    SimpleResourcesServer,
)


class Tone(str, Enum):  # noqa: UP042
    FORMAL = "formal"
    CASUAL = "casual"


class Criterion(BaseModel):
    name: str
    weight: float = 1.0
    pattern: re.Pattern[str] | None = None


class RubricConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    criteria: list[Criterion] = Field(default_factory=list)
    tone: Tone = Tone.CASUAL

    @field_validator("criteria")
    @classmethod
    def some(cls, value: list[Criterion]) -> list[Criterion]:
        if not value:
            raise ValueError("a rubric needs criteria")
        return value


class RubricRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    topic: str = Field(min_length=1)

    @model_validator(mode="after")
    def lower(self) -> "RubricRunRequest":
        self.topic = self.topic.lower()
        return self


class RubricVerifyRequest(RubricRunRequest, BaseVerifyRequest):
    pass


class RubricVerifyResponse(BaseMultiRewardVerifyResponse):
    model_config = ConfigDict(extra="allow")

    notes: list[str] = Field(default_factory=list)


class Scorer:
    """Not a pydantic type: the server has to allow it."""

    def __init__(self, criteria: list[Criterion]) -> None:
        self.criteria = criteria

    def score(self, text: str) -> dict[str, float]:
        return {c.name: c.weight * bool(c.pattern and c.pattern.search(text)) for c in self.criteria}


RequestT = TypeVar("RequestT", bound=RubricVerifyRequest)


class RubricServer(SimpleResourcesServer, Generic[RequestT]):
    """Base of a family: a subclass says what text is scored."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: RubricConfig
    scorer: Scorer | None = None
    calls: int = 0

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.scorer is None:
            self.scorer = Scorer(self.config.criteria)

    @abstractmethod
    def text_of(self, body: RequestT) -> str: ...

    async def verify(self, body: RequestT = Body()) -> RubricVerifyResponse:
        self.calls += 1
        components = self.scorer.score(self.text_of(body))
        return RubricVerifyResponse(
            **body.model_dump(),
            reward=sum(components.values()),
            reward_components=components,
            notes=[f"tone={self.config.tone.value}"],
        )
