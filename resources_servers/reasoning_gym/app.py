# SPDX-License-Identifier: Apache-2.0
"""The tasks of `reasoning-gym`: puzzles, algorithms, logic, arithmetic and more, each with its own scorer.

Some scorers evaluate what a model wrote as code, so they all run in sandboxes. This process never loads the library.
"""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.code_execution import CodePool
from nemo_gym.cpu_pool import usable_cpus
from resources_servers.reasoning_gym.scoring import UnknownTask, extract_answer, score_answer, scorer_pool


class ReasoningGymResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    num_processes: int | None = Field(None, ge=1)
    """How many answers are scored at a time; None: one per processor."""
    scorer_timeout_seconds: float = Field(10, gt=0)
    """The time limit for scoring; an answer that takes longer scores 0."""


class Metadata(BaseModel, extra="allow"):
    """The task of a row, and what its scorer needs besides the answer."""

    source_dataset: str


class ReasoningGymVerifyRequest(BaseVerifyRequest):
    """A dataset entry, as the library makes it."""

    question: str
    answer: str | None = None
    """The right answer; None if there are many, which the scorer recognizes."""
    metadata: Metadata


class ReasoningGymVerifyResponse(BaseVerifyResponse):
    """The reward, which equals the score."""

    task_name: str
    score: float
    extracted_answer: str


class ReasoningGymResourcesServer(SimpleResourcesServer):
    """Scores answers with the library's scorers; there are no tools."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    MEAN_REWARDS_BY = "task_name"
    config: ReasoningGymResourcesServerConfig
    _pool: CodePool = PrivateAttr()

    def setup_webserver(self) -> FastAPI:
        """Return the app. The sandboxes end with it; none starts before there is an answer to score."""
        app = super().setup_webserver()
        workers = self.config.num_processes or usable_cpus()
        self._pool = scorer_pool(workers, self.config.scorer_timeout_seconds)
        self._pool.close_with(app)
        return app

    async def verify(self, body: ReasoningGymVerifyRequest) -> ReasoningGymVerifyResponse:
        """Score the answer with the task's scorer."""
        task = body.metadata.source_dataset
        answer = extract_answer(grading.answer_text(body.response))
        entry = {"question": body.question, "answer": body.answer, "metadata": body.metadata.model_dump()}
        try:
            score = await score_answer(self._pool, task, answer, entry)
        except UnknownTask as error:
            raise HTTPException(422, str(error)) from error
        return ReasoningGymVerifyResponse(
            **dict(body), reward=score, task_name=task, score=score, extracted_answer=answer
        )


if __name__ == "__main__":
    ReasoningGymResourcesServer.run_webserver()
