# SPDX-License-Identifier: Apache-2.0
"""Base class of environments that are a function: an answer and its row in, a score out.

class CapitalsServer(ScoringServer):
    @staticmethod
    def score(answer, task):
        return float(answer == task["capital"])
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import ConfigDict, PositiveFloat, PositiveInt, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.cpu_pool import CpuPool, WorkerDied
from nemo_gym.errors import RolloutFailure

Score = float | Mapping[str, float]
"""The score of an answer: a number, or named parts that add up to it."""


class ScoringServerConfig(BaseResourcesServerConfig):
    """Config of an environment that is a function."""

    num_processes: PositiveInt | None = None
    """How many answers are scored at a time; None: one per processor."""
    scorer_timeout_seconds: PositiveFloat = 30.0
    """The time limit for scoring an answer. A rollout whose answer takes longer fails."""


class ScoringVerifyRequest(BaseVerifyRequest):
    """A row and the response to it; other fields are for the scorer."""

    model_config = ConfigDict(extra="allow")


class ScoringVerifyResponse(BaseVerifyResponse):
    """The reward, and the answer that earned it."""

    model_config = ConfigDict(extra="allow")

    extracted_answer: str | None


class ScoringServer(SimpleResourcesServer):
    """Scores answers with a function, in separate processes: override `score`."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    PRELOAD: ClassVar[tuple[str, ...]] = ()
    """Modules that `score` needs; they are imported once for all processes."""
    config: ScoringServerConfig
    _pool: CpuPool = PrivateAttr()

    @staticmethod
    def score(answer: str, task: dict[str, Any]) -> Score:
        """Return the score of `answer` to a task, which is the row without `responses_create_params`."""
        raise NotImplementedError("a ScoringServer needs a static method `score(answer, task)`")

    def extract_answer(self, text: str) -> str | None:
        r"""Return the answer in a reply: from `<answer>` tags, else from the first `\boxed{}`, else all of it."""
        said = grading.strip_thinking(text)
        if (tagged := grading.tagged(said, "answer")) is not None:
            return tagged
        boxes = grading.all_boxed(said)
        return boxes[0] if boxes else said or None

    def setup_webserver(self) -> FastAPI:
        """Return the app. The scoring processes end with it; none starts before there is an answer to score."""
        app = super().setup_webserver()
        module = type(self).score.__module__
        preload = self.PRELOAD
        if module != "__main__":
            preload = (*preload, module)
        self._pool = CpuPool(self.config.num_processes, timeout_s=self.config.scorer_timeout_seconds, preload=preload)
        self._pool.close_with(app)
        return app

    async def verify(self, body: ScoringVerifyRequest) -> ScoringVerifyResponse:  # type: ignore[override]
        """Score the answer; a reply without one scores 0."""
        answer = self.extract_answer(grading.assistant_text(body.response))
        reward: Score = 0.0
        if answer is not None:
            reward = await self.score_answer(answer, dict(body.model_extra or {}))
        extra: dict[str, Any] = {}
        if isinstance(reward, Mapping):
            extra["reward_components"] = dict(reward)
            reward = math.fsum(reward.values())
        return ScoringVerifyResponse(**dict(body), reward=reward, extracted_answer=answer, **extra)

    async def score_answer(self, answer: str, task: dict[str, Any]) -> Score:
        """Run `score` in a process; raise a RolloutFailure if it raises, times out, or returns no finite number."""
        try:
            score = await self._pool.run(type(self).score, answer, task)
        except (TimeoutError, WorkerDied) as error:
            raise RolloutFailure(
                "verifier",
                f"the answer could not be scored: {error}\n"
                "hint: raise `scorer_timeout_seconds`, or check what the scorer does with this answer",
            ) from error
        parts = dict(score) if isinstance(score, Mapping) else {"score": score}
        if not all(isinstance(part, int | float) and math.isfinite(part) for part in parts.values()):
            raise RolloutFailure(
                "verifier",
                f"the scorer returned {score!r:.200}, which is not a finite number.\n"
                "hint: return a number, or named numbers that add up to the reward",
            )
        numbers = {name: float(part) for name, part in parts.items()}
        return numbers if isinstance(score, Mapping) else numbers["score"]
