# SPDX-License-Identifier: Apache-2.0
"""The tasks of `reasoning-gym`: puzzles, algorithms, logic, arithmetic and more, each with a scorer of its own.

Scorers evaluate what a model wrote, some of them as code, so they run in sandboxes; the library itself is never loaded
here.
"""

from typing import Any, ClassVar

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.code_execution import CodePool
from nemo_gym.cpu_pool import usable_cpus
from nemo_gym.reward_profile import compute_mean_rewards_by
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.reasoning_gym.scoring import UnknownTask, extracted_answer, scored, scorer_pool


class ReasoningGymResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    num_processes: int | None = Field(None, ge=1)
    """How many answers are scored at a time; None: as many as there are processors."""
    scorer_timeout_seconds: float = Field(10, gt=0)
    """How long scoring may take; an answer that takes longer is worth 0."""


class Metadata(BaseModel):
    """Which task a row is of, and what its scorer needs beside the answer."""

    model_config = ConfigDict(extra="allow")

    source_dataset: str


class ReasoningGymRunRequest(BaseRunRequest):
    """An entry of a task, as the library makes it."""

    question: str
    answer: str | None = None
    """The right answer; None where there are many, and the scorer knows one when it sees it."""
    metadata: Metadata


class ReasoningGymVerifyRequest(ReasoningGymRunRequest, BaseVerifyRequest):
    """An entry and the response to it."""


class ReasoningGymVerifyResponse(BaseVerifyResponse):
    """The reward, which is the score."""

    task_name: str
    score: float
    extracted_answer: str | None


class ReasoningGymResourcesServer(SimpleResourcesServer):
    """No tools, and the scorers of the library."""

    config: ReasoningGymResourcesServerConfig
    _pool: CodePool = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Have sandboxes, of which none is started before there is something to score."""
        super().model_post_init(context)
        workers = self.config.num_processes or usable_cpus()
        self._pool = scorer_pool(workers, self.config.scorer_timeout_seconds)

    def setup_webserver(self) -> FastAPI:
        """The app, with which the sandboxes end."""
        app = super().setup_webserver()
        self._pool.close_with(app)
        return app

    async def verify(self, body: ReasoningGymVerifyRequest) -> ReasoningGymVerifyResponse:
        """The score that the task gives the answer."""
        task = body.metadata.source_dataset
        answer = extracted_answer(grading.assistant_text(body.response))
        entry = {"question": body.question, "answer": body.answer, "metadata": body.metadata.model_dump()}
        try:
            score = await scored(self._pool, task, answer, entry) if answer else 0.0
        except UnknownTask as error:
            raise HTTPException(422, str(error)) from error
        return ReasoningGymVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            reward=score,
            task_name=task,
            score=score,
            extracted_answer=answer,
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """The mean score of every task, each of its rows counting alike."""
        return compute_mean_rewards_by(tasks, "task_name")


if __name__ == "__main__":
    ReasoningGymResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = ReasoningGymResourcesServer.run_webserver()
