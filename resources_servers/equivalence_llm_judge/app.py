# SPDX-License-Identifier: Apache-2.0
"""Questions with an answer in words: a judge model decides whether the reply is equivalent to the expected answer.

`extraction` finds what the judge sees; the config names the template file of the judge's prompt.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from pydantic import Field, PrivateAttr, field_validator, model_validator

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import JudgeEvaluation, ask_judge, verdict_label
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from resources_servers.equivalence_llm_judge import extraction


class LLMJudgeResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    judge_model_server: ModelServerRef
    """The model that judges."""
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = Field(
        default_factory=lambda: NeMoGymResponseCreateParamsNonStreaming(input=[])
    )
    """Parameters of the calls to the judge; their input is replaced."""
    judge_endpoint_max_concurrency: int | None = Field(64, ge=1)
    """Maximum number of calls to the judge at once; None for no limit."""
    judge_system_message: str | None = None
    """A system message for the judge; None for none."""
    judge_prompt_template_fpath: str = "prompt_templates/equivalence_llm_judge.txt"
    """A file with the fields `{question}`, `{expected_answer}` and `{generated_answer}`; relative to this server."""
    judge_equal_label: str = Field("[[A=B]]", min_length=1)
    """What the judge writes if both answers mean the same."""
    judge_not_equal_label: str = Field("[[A!=B]]", min_length=1)
    """What the judge writes if they do not."""
    question_extract_regex: str | None = None
    """Pattern that finds the question in the last user message; None for all of it."""
    response_extract_regex: str | None = None
    """Pattern that finds the answer in the reply; None for all of it."""
    use_per_record_regex: bool = True
    """Prefer a row's own `template_metadata.output_regex`."""
    extraction_length_threshold: int | None = 120
    """Ignore a row's own pattern if the expected answer is longer than this; None for no limit."""
    check_twice_swap: bool = False
    """Ask a second time, with the answers swapped, before a reply is found equivalent."""
    reward_if_swap_fails: float = 0.0
    """Reward of a reply that was found equivalent in one order only."""
    check_full_generation_on_fail: bool = True
    """Ask about the whole reply when what a pattern found in it is not equivalent."""
    reward_if_full_generation_succeeds: float = 0.5
    """Reward of a reply that is only equivalent as a whole."""

    @field_validator("question_extract_regex", "response_extract_regex")
    @classmethod
    def _require_patterns(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            grading.compile_pattern(pattern, extraction.CONFIG_FLAGS)
        return pattern


class LLMJudgeVerifyRequest(BaseVerifyRequest):
    """A question and its answer, which may also be in `metadata`."""

    expected_answer: str = Field(min_length=1)
    question: str | None = None
    """None: it is found in the last user message."""
    uuid: str | int | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: grading.TemplateMetadata | None = None
    """`output_regex`, a pattern or several, finds the answer where the prompt asks for a form of its own."""

    @model_validator(mode="before")
    @classmethod
    def _take_the_answer_from_metadata(cls, row: Any) -> Any:
        if isinstance(row, dict) and row.get("expected_answer") is None and isinstance(row.get("metadata"), dict):
            return {**row, "expected_answer": row["metadata"].get("expected_answer")}
        return row


class LabelledEvaluation(JudgeEvaluation):
    """One call to the judge, and its verdict."""

    verdict_label: str | None = None
    """The label that its reply ends with; None if there is none, which does not count as equal."""


class LLMJudgeVerifyResponse(BaseVerifyResponse):
    """The reward, and how the judge came to it."""

    expected_answer: str
    judge_evaluations: list[LabelledEvaluation]


class LLMJudgeResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that asks a judge."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    config: LLMJudgeResourcesServerConfig
    _template: str = PrivateAttr()
    _places: AbstractAsyncContextManager[Any] = PrivateAttr(default_factory=nullcontext)

    def model_post_init(self, context: Any) -> None:
        """Read the template."""
        super().model_post_init(context)
        self._template = extraction.read_template(self.config.judge_prompt_template_fpath)
        if self.config.judge_endpoint_max_concurrency is not None:
            self._places = asyncio.Semaphore(self.config.judge_endpoint_max_concurrency)

    async def verify(self, body: LLMJudgeVerifyRequest) -> LLMJudgeVerifyResponse:
        """Give 1 if the judge finds the answer equivalent; less, as configured, if it does so in part."""
        evaluations: list[LabelledEvaluation] = []
        reward = await self._reward(body, evaluations)
        return LLMJudgeVerifyResponse(**dict(body), judge_evaluations=evaluations, reward=reward)

    async def _reward(self, body: LLMJudgeVerifyRequest, evaluations: list[LabelledEvaluation]) -> float:
        said = grading.strip_thinking(grading.assistant_text(body.response))
        if not said:
            return 0.0
        found = self._find_answer(body, said)
        question, expected = self._find_question(body), body.expected_answer
        if await self._is_equal(question, expected, found or said, evaluations):
            if not self.config.check_twice_swap or await self._is_equal(question, found or said, expected, evaluations):
                return 1.0
            return self.config.reward_if_swap_fails
        has_second_chance = self.config.check_full_generation_on_fail and found is not None and found != said
        if has_second_chance and await self._is_equal(question, expected, said, evaluations):
            return self.config.reward_if_full_generation_succeeds
        return 0.0

    def _find_question(self, body: LLMJudgeVerifyRequest) -> str:
        if body.question is not None:
            return body.question
        asked = extraction.last_user_text(body.responses_create_params)
        return self._find_by(self.config.question_extract_regex, asked) or asked

    def _find_answer(self, body: LLMJudgeVerifyRequest, said: str) -> str | None:
        """Return what a pattern finds in the reply; None if there is none, or it finds nothing."""
        limit = self.config.extraction_length_threshold
        if self.config.use_per_record_regex and (limit is None or len(body.expected_answer) <= limit):
            own = grading.compile_output_regex(body.template_metadata, extraction.ROW_FLAGS)
            if own:
                return extraction.find_first(own, said)
        return self._find_by(self.config.response_extract_regex, said)

    def _find_by(self, pattern: str | None, text: str) -> str | None:
        return grading.last_match(grading.compile_pattern(pattern, extraction.CONFIG_FLAGS), text) if pattern else None

    async def _is_equal(self, question: str, first: str, second: str, evaluations: list[LabelledEvaluation]) -> bool:
        """Ask the judge, and keep what it said."""
        config = self.config
        values = {"question": question, "expected_answer": first, "generated_answer": second}
        messages = [{"role": "user", "content": extraction.fill_template(self._template, values)}]
        if config.judge_system_message is not None:
            messages.insert(0, {"role": "system", "content": config.judge_system_message})
        async with self._places:
            asked = await ask_judge(
                self.server_client,
                server_name=config.judge_model_server.name,
                messages=messages,
                responses_create_params=config.judge_responses_create_params,
            )
        label = verdict_label(asked.response, (config.judge_equal_label, config.judge_not_equal_label))
        evaluations.append(LabelledEvaluation(**dict(asked), verdict_label=label))
        return label == config.judge_equal_label


if __name__ == "__main__":
    LLMJudgeResourcesServer.run_webserver()
