# SPDX-License-Identifier: Apache-2.0
"""The tasks of `reasoning-gym`: puzzles, algorithms, logic, arithmetic and more, each with a scorer of its own.

Scorers evaluate what a model wrote, some of them as code, so they run in sandboxes; the library itself is never loaded
here.
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
    """How many answers are scored at a time; None: as many as there are processors."""
    scorer_timeout_seconds: float = Field(10, gt=0)
    """How long scoring may take; an answer that takes longer is worth 0."""


class Metadata(BaseModel, extra="allow"):
    """Which task a row is of, and what its scorer needs beside the answer."""

    source_dataset: str


class ReasoningGymVerifyRequest(BaseVerifyRequest):
    """An entry of a task, as the library makes it."""

    question: str
    answer: str | None = None
    """The right answer; None where there are many, and the scorer knows one when it sees it."""
    metadata: Metadata


class ReasoningGymVerifyResponse(BaseVerifyResponse):
    """The reward, which is the score."""

    task_name: str
    score: float
    extracted_answer: str | None


class ReasoningGymResourcesServer(SimpleResourcesServer):
    """No tools, and the scorers of the library."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    MEAN_REWARDS_BY = "task_name"
    config: ReasoningGymResourcesServerConfig
    _pool: CodePool = PrivateAttr()

    def setup_webserver(self) -> FastAPI:
        """Return the app, with sandboxes that end when it does; none is started before there is something to score."""
        app = super().setup_webserver()
        workers = self.config.num_processes or usable_cpus()
        self._pool = scorer_pool(workers, self.config.scorer_timeout_seconds)
        self._pool.close_with(app)
        return app

    async def verify(self, body: ReasoningGymVerifyRequest) -> ReasoningGymVerifyResponse:
        """Return the score that the task gives the answer."""
        task = body.metadata.source_dataset
        answer = extract_answer(grading.assistant_text(body.response))
        entry = {"question": body.question, "answer": body.answer, "metadata": body.metadata.model_dump()}
        try:
            score = await score_answer(self._pool, task, answer, entry) if answer else 0.0
        except UnknownTask as error:
            raise HTTPException(422, str(error)) from error
        return ReasoningGymVerifyResponse(
            **dict(body), reward=score, task_name=task, score=score, extracted_answer=answer
        )


if __name__ == "__main__":
    ReasoningGymResourcesServer.run_webserver()
