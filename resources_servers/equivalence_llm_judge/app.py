# SPDX-License-Identifier: Apache-2.0
"""Questions with an answer in words: a judge model decides whether the reply is equivalent to the expected answer.

What the judge sees is found by `extraction`; how it is asked is in a template file that the config names.
"""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, Field, PrivateAttr, field_validator, model_validator

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
from nemo_gym.judge import JudgeError, call_judge
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.equivalence_llm_judge.extraction import PLACEHOLDERS, compiled, filled, last_match, patterns_of

HERE = Path(__file__).parent


class LLMJudgeResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    judge_model_server: ModelServerRef
    """The model that judges."""
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = Field(
        default_factory=lambda: NeMoGymResponseCreateParamsNonStreaming(input=[])
    )
    """Parameters of the calls to the judge; their input is replaced."""
    judge_endpoint_max_concurrency: int | None = Field(64, ge=1)
    """At most this many calls to the judge at a time; None for as many as there are."""
    judge_system_message: str | None = None
    judge_prompt_template_fpath: str = "prompt_templates/equivalence_llm_judge.txt"
    """A file with the places `{question}`, `{expected_answer}` and `{generated_answer}`; relative to this server."""
    judge_equal_label: str = Field("[[A=B]]", min_length=1)
    judge_not_equal_label: str = Field("[[A!=B]]", min_length=1)
    question_extract_regex: str | None = None
    """Finds the question in the last user message; None for all of it."""
    response_extract_regex: str | None = None
    """Finds the answer in the reply; None for all of it."""
    use_per_record_regex: bool = True
    """Prefer a row's own `template_metadata.output_regex`."""
    extraction_length_threshold: int | None = 120
    """A row's own pattern is not used if the expected answer is longer; None for no limit."""
    check_twice_swap: bool = False
    """Ask a second time, with the answers swapped, before a reply is found equivalent."""
    reward_if_swap_fails: float = 0.0
    """What a reply is worth that was found equivalent in one order only."""
    check_full_generation_on_fail: bool = True
    """Ask about the whole reply when what a pattern found in it is not equivalent."""
    reward_if_full_generation_succeeds: float = 0.5
    """What a reply is worth that is equivalent as a whole only."""

    @field_validator("question_extract_regex", "response_extract_regex")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            compiled(pattern)
        return pattern

    def judge_template(self) -> str:
        """The text of the template; ValueError if it is not there or lacks a place."""
        path = next(
            (
                path
                for path in (HERE / self.judge_prompt_template_fpath, Path(self.judge_prompt_template_fpath))
                if path.is_file()
            ),
            None,
        )
        if path is None:
            raise ValueError(f"judge_prompt_template_fpath: there is no file {self.judge_prompt_template_fpath!r}")
        template = path.read_text()
        missing = [name for name in PLACEHOLDERS[1:] if f"{{{name}}}" not in template]
        if missing:
            raise ValueError(f"{path}: the template has no place for {' and '.join(missing)}")
        return template


class LLMJudgeRunRequest(BaseRunRequest):
    """A question and its answer, which may stand in `metadata` as well."""

    expected_answer: str = Field(min_length=1)
    question: str | None = None
    """None: it is found in the last user message."""
    uuid: str | int | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: dict[str, Any] | None = None
    """`output_regex`, a pattern or several, finds the answer where the prompt asks for a form of its own."""

    @model_validator(mode="before")
    @classmethod
    def _take_the_answer_from_metadata(cls, row: Any) -> Any:
        if isinstance(row, dict) and row.get("expected_answer") is None and isinstance(row.get("metadata"), dict):
            return {**row, "expected_answer": row["metadata"].get("expected_answer")}
        return row

    @field_validator("template_metadata")
    @classmethod
    def _has_patterns_that_compile(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        patterns_of((value or {}).get("output_regex"))
        return value


class LLMJudgeVerifyRequest(LLMJudgeRunRequest, BaseVerifyRequest):
    """A question and the response to it."""


class JudgeEvaluation(BaseModel):
    """One call to the judge."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    response: NeMoGymResponse
    verdict_label: str | None = None
    """The label that its reply ends in; None if it gives none, which is no agreement."""


class LLMJudgeVerifyResponse(BaseVerifyResponse):
    """The reward, and how the judge came to it."""

    expected_answer: str
    judge_evaluations: list[JudgeEvaluation]


class LLMJudgeResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that asks a judge."""

    config: LLMJudgeResourcesServerConfig
    _template: str = PrivateAttr()
    _places: asyncio.Semaphore | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        """Read the template."""
        super().model_post_init(context)
        self._template = self.config.judge_template()
        if self.config.judge_endpoint_max_concurrency is not None:
            self._places = asyncio.Semaphore(self.config.judge_endpoint_max_concurrency)

    async def verify(self, body: LLMJudgeVerifyRequest) -> LLMJudgeVerifyResponse:
        """1 if the judge finds the answer equivalent; less, by the config, if it does so in part."""
        evaluations: list[JudgeEvaluation] = []
        reward = await self._reward(body, evaluations)
        return LLMJudgeVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            expected_answer=body.expected_answer,
            judge_evaluations=evaluations,
            reward=reward,
        )

    async def _reward(self, body: LLMJudgeVerifyRequest, evaluations: list[JudgeEvaluation]) -> float:
        said = grading.strip_thinking(grading.assistant_text(body.response))
        if not said:
            return 0.0
        found = self._found_answer(body, said)
        question, expected = self._question(body), body.expected_answer
        if await self._is_equal(question, expected, found or said, evaluations):
            if not self.config.check_twice_swap or await self._is_equal(question, found or said, expected, evaluations):
                return 1.0
            return self.config.reward_if_swap_fails
        has_second_chance = self.config.check_full_generation_on_fail and found is not None and found != said
        if has_second_chance and await self._is_equal(question, expected, said, evaluations):
            return self.config.reward_if_full_generation_succeeds
        return 0.0

    def _question(self, body: LLMJudgeVerifyRequest) -> str:
        if body.question is not None:
            return body.question
        asked = last_user_text(body.responses_create_params)
        pattern = self.config.question_extract_regex
        return (last_match([compiled(pattern)], asked) if pattern else None) or asked

    def _found_answer(self, body: LLMJudgeVerifyRequest, said: str) -> str | None:
        """What a pattern finds in the reply; None if there is none, or it finds nothing."""
        limit = self.config.extraction_length_threshold
        if self.config.use_per_record_regex and (limit is None or len(body.expected_answer) <= limit):
            own = patterns_of((body.template_metadata or {}).get("output_regex"))
            if own:
                return last_match(own, said)
        pattern = self.config.response_extract_regex
        return last_match([compiled(pattern)], said) if pattern else None

    async def _is_equal(self, question: str, first: str, second: str, evaluations: list[JudgeEvaluation]) -> bool:
        """Ask the judge, and keep what it said."""
        values = {"question": question, "expected_answer": first, "generated_answer": second}
        messages = [{"role": "user", "content": filled(self._template, values)}]
        if self.config.judge_system_message is not None:
            messages.insert(0, {"role": "system", "content": self.config.judge_system_message})
        params = NeMoGymResponseCreateParamsNonStreaming.model_validate(
            {**dict(self.config.judge_responses_create_params), "input": messages}
        )
        response = await self._asked(params)
        label = self._verdict_label(response)
        evaluations.append(JudgeEvaluation(responses_create_params=params, response=response, verdict_label=label))
        return label == self.config.judge_equal_label

    async def _asked(self, params: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        judge = self.config.judge_model_server.name
        call = call_judge(
            self.server_client, server_name=judge, url_path="/v1/responses", json=params, response_model=NeMoGymResponse
        )
        if self._places is None:
            response = await call
        else:
            async with self._places:
                response = await call
        if not grading.assistant_text(response).strip():
            raise JudgeError(
                f"judge {judge!r} said nothing\n"
                "hint: is max_output_tokens in judge_responses_create_params enough for it to finish thinking?"
            )
        return response

    def _verdict_label(self, response: NeMoGymResponse) -> str | None:
        text = grading.strip_thinking(grading.assistant_text(response))
        labels = (self.config.judge_equal_label, self.config.judge_not_equal_label)
        last = max(labels, key=text.rfind)
        return last if last in text else None


def last_user_text(params: NeMoGymResponseCreateParamsNonStreaming) -> str:
    """The text of the last user message."""
    if isinstance(params.input, str):
        return params.input
    for item in reversed(params.input):
        message = item if isinstance(item, dict) else item.model_dump()
        if message.get("role") == "user":
            content = message.get("content") or ""
            return content if isinstance(content, str) else "\n".join(part.get("text") or "" for part in content)
    return ""


if __name__ == "__main__":
    LLMJudgeResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = LLMJudgeResourcesServer.run_webserver()
