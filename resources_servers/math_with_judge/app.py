# SPDX-License-Identifier: Apache-2.0
"""Questions whose answer is an expression in a box: math-verify compares it with the expected one, then optionally a
judge.

math-verify runs in worker processes, because it is CPU-bound and may hang. If it does not find the answers equal and a
judge is asked, the judge must find them equal in both orders.
"""

import logging
from typing import Any

from fastapi import FastAPI
from pydantic import Field, PrivateAttr, field_validator

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import JudgeEvaluation, ask_for_verdict
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from resources_servers.math_with_judge.comparisons import CannotBeCompared, Comparisons
from resources_servers.math_with_judge.judging import EQUAL_LABEL, NOT_EQUAL_LABEL, build_messages

LOG = logging.getLogger(__name__)


class LibraryJudgeMathResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    judge_model_server: ModelServerRef = Field(
        default_factory=lambda: ModelServerRef(type="responses_api_models", name="policy_model")
    )
    """The model that judges."""
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = Field(
        default_factory=lambda: NeMoGymResponseCreateParamsNonStreaming(input=[])
    )
    """Parameters of the calls to the judge; their input is replaced."""
    should_use_judge: bool = True
    """Ask the judge about answers that the library does not find equal."""
    answer_regex: str | None = None
    """Pattern whose last match is the answer, for prompts that ask for none in a box; None: the last box is."""
    library_verifier_timeout_seconds: float = Field(10, gt=0)
    """Seconds after which the library is stopped; the answer then counts as not equal."""
    library_verifier_max_concurrency: int = Field(32, ge=1)
    """Maximum number of processes for the library; more than one per CPU only while some take long."""

    @field_validator("answer_regex")
    @classmethod
    def _require_pattern(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            grading.compile_pattern(pattern)
        return pattern


class LibraryJudgeMathRunRequest(BaseRunRequest):
    """A question and its answer."""

    question: str
    expected_answer: str


class LibraryJudgeMathVerifyRequest(LibraryJudgeMathRunRequest, BaseVerifyRequest):
    """A question and the response to it."""


class LibraryJudgeMathVerifyResponse(BaseVerifyResponse):
    """The reward, and who gave it."""

    expected_answer: str
    extracted_answer: str | None
    """The answer that the library found in the response."""
    library_reward: float
    judge_evaluations: list[JudgeEvaluation] | None
    """The calls to the judge; None if it was not asked."""


class LibraryJudgeMathResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that asks the library, then the judge."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    config: LibraryJudgeMathResourcesServerConfig
    _comparisons: Comparisons = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Create the workers; none starts before there is something to compare."""
        super().model_post_init(context)
        self._comparisons = Comparisons(
            self.config.library_verifier_max_concurrency, self.config.library_verifier_timeout_seconds
        )

    def setup_webserver(self) -> FastAPI:
        """Return the app; the workers end with it."""
        app = super().setup_webserver()
        self._comparisons.pool.close_with(app)
        return app

    async def verify(self, body: LibraryJudgeMathVerifyRequest) -> LibraryJudgeMathVerifyResponse:
        """Give 1 if the library, or else the judge, finds the answer equal to the expected one; 0 if none is boxed."""
        said = grading.joined_text(body.response)
        reward, extracted, library_reward, evaluations = await self._verify_answer(
            body.question, body.expected_answer, said
        )
        return LibraryJudgeMathVerifyResponse(
            **dict(body),
            extracted_answer=extracted,
            library_reward=library_reward,
            judge_evaluations=evaluations,
            reward=reward,
        )

    async def _verify_answer(
        self, question: str, expected_answer: str, generated_answer: str
    ) -> tuple[float, str | None, float, list[JudgeEvaluation] | None]:
        """Return the reward, the answer that was found, the library's reward, and the calls to the judge."""
        if self.config.answer_regex is not None:
            pattern = grading.compile_pattern(self.config.answer_regex)
            found = grading.last_match(pattern, grading.strip_thinking(generated_answer))
            generated_answer = f"\\boxed{{{found.rstrip('.')}}}" if found else ""
        answer = grading.strip_thinking(generated_answer)
        box = grading.last_box(answer)
        if box is None:
            return 0.0, None, 0.0, None
        library_reward, extracted = await self._verify_answer_with_library(expected_answer, answer)
        if library_reward > 0.5 and answer != generated_answer.strip():
            # Thinking never earns the reward, but a box in it that differs from the answer costs it.
            library_reward, _ = await self._verify_answer_with_library(expected_answer, generated_answer)
        if library_reward > 0.5 or not self.config.should_use_judge:
            return library_reward, extracted, library_reward, None
        # The judge reads only the box: an argument for the answer could sway the verdict.
        judge_reward, evaluations = await self._verify_answer_with_judge(question, expected_answer, box)
        return judge_reward, extracted, library_reward, evaluations

    async def _verify_answer_with_library(
        self, expected_answer: str, generated_answer: str
    ) -> tuple[float, str | None]:
        """Return 1 or 0, and the answer that the library found."""
        try:
            verdict = await self._comparisons.verdict_unless_fatal(expected_answer, generated_answer)
        except (TimeoutError, CannotBeCompared) as error:
            LOG.warning(
                "%s: the library gave no verdict on an answer of %d characters, so it does not count as equal: %s",
                self.config.name,
                len(generated_answer),
                error,
            )
            return 0.0, None
        return float(verdict.is_equal), verdict.extracted_answer

    async def _verify_answer_with_judge(
        self, question: str, expected_answer: str, generated_answer: str
    ) -> tuple[float, list[JudgeEvaluation]]:
        """Return 1 if the judge finds the answers equal in both orders; it is asked again only if it did at first."""
        evaluations = list[JudgeEvaluation]()
        for first, second in ((expected_answer, generated_answer), (generated_answer, expected_answer)):
            label, evaluation = await ask_for_verdict(
                self.server_client,
                server_name=self.config.judge_model_server.name,
                messages=build_messages(question, first, second),
                responses_create_params=self.config.judge_responses_create_params,
                labels=(EQUAL_LABEL, NOT_EQUAL_LABEL),
            )
            evaluations.append(evaluation)
            if label != EQUAL_LABEL:
                return 0.0, evaluations
        return 1.0, evaluations


if __name__ == "__main__":
    LibraryJudgeMathResourcesServer.run_webserver()
