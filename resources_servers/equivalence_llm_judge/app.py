# SPDX-License-Identifier: Apache-2.0
"""Questions with an answer in words: a judge model decides whether the reply is equivalent to the expected answer.

`extraction` finds what the judge sees; the config names the template file of the judge's prompt.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import JudgeEvaluation, NoVerdict, ask_for_verdict, find_labels
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from resources_servers.equivalence_llm_judge import extraction

ISSUE_RATE = "judgement_parsing_issue_rate"


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
    max_answer_chars: int | None = Field(None, gt=0)
    """Give a longer reply 0 without asking the judge; None for no limit."""
    use_per_record_regex: bool = True
    """Prefer a row's own `template_metadata.output_regex`."""
    extraction_length_threshold: int | None = 120
    """Show the judge the whole reply if the row has a pattern and an expected answer longer than this, and ask it only
    once; None for no limit."""
    check_twice_swap: bool = False
    """Ask a second time, with the answers swapped, before a reply is found equivalent."""
    reward_if_swap_fails: float = 0.0
    """Reward of a reply that was found equivalent in one order only."""
    check_full_generation_on_fail: bool = True
    """Ask about the whole reply when the judge did not find equivalent what a row's own pattern found in it."""
    reward_if_full_generation_succeeds: float = 0.5
    """Reward of a reply that is only equivalent as a whole."""

    @field_validator("question_extract_regex", "response_extract_regex")
    @classmethod
    def _require_patterns(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            grading.compile_pattern(pattern, extraction.PATTERN_FLAGS)
        return pattern


class TemplateMetadata(BaseModel):
    """What a row says about the form of its answer; other fields are left alone."""

    model_config = ConfigDict(extra="allow")

    output_regex: str | list[str] | None = None
    """A pattern, or several, that finds the answer; one that does not compile finds nothing."""


class LLMJudgeVerifyRequest(BaseVerifyRequest):
    """A question and its answer, which may also be in `metadata`."""

    expected_answer: str = Field(min_length=1)
    question: str | None = None
    """None: it is found in the last user message."""
    uuid: str | int | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: TemplateMetadata | None = None

    @property
    def patterns(self) -> list[str]:
        """The row's own patterns."""
        given = self.template_metadata.output_regex if self.template_metadata else None
        return [given] if isinstance(given, str) and given else list(given or ())

    @model_validator(mode="before")
    @classmethod
    def _take_the_answer_from_metadata(cls, row: Any) -> Any:
        if isinstance(row, dict) and row.get("expected_answer") is None and isinstance(row.get("metadata"), dict):
            return {**row, "expected_answer": row["metadata"].get("expected_answer")}
        return row


class LabelledEvaluation(JudgeEvaluation):
    """One call to the judge, and its verdict."""

    verdict_label: str | None = None
    """The label that its reply ends with; None if there is none."""
    judgement_parsing_issues: list[str] = []
    """What was odd about the reply; left out where nothing was."""

    @model_serializer(mode="wrap")
    def _leave_out_no_issues(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        if not self.judgement_parsing_issues:
            fields.pop("judgement_parsing_issues", None)
        return fields


class LLMJudgeVerifyResponse(BaseVerifyResponse):
    """The reward, and how the judge came to it."""

    expected_answer: str
    judge_evaluations: list[LabelledEvaluation]
    failure_reason: str | None = None
    """Why the judge was not asked: `empty_final_answer`, or `final_answer_too_long: …`."""


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
        said = extraction.last_answer(body.response)
        failure_reason = self._explain_unfit(said)
        reward = 0.0 if failure_reason else await self._judge(body, said, evaluations)
        return LLMJudgeVerifyResponse(
            **dict(body), judge_evaluations=evaluations, failure_reason=failure_reason, reward=reward
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the share of judged rollouts with a judge's reply that was odd, in all and by kind."""
        judged = [
            rollout["judge_evaluations"] for task in tasks for rollout in task if rollout.get("judge_evaluations")
        ]
        found = [
            {issue for evaluation in evaluations for issue in evaluation.get("judgement_parsing_issues") or ()}
            for evaluations in judged
        ]
        if not found:
            return {}
        kinds = sorted(set().union(*found))
        shares = {f"{ISSUE_RATE}/{kind}": sum(kind in issues for issues in found) / len(found) for kind in kinds}
        return {ISSUE_RATE: sum(map(bool, found)) / len(found), **shares}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Add the share of odd replies to the usual metrics."""
        share = {ISSUE_RATE: agent_metrics[ISSUE_RATE]} if ISSUE_RATE in agent_metrics else {}
        return {**super().get_key_metrics(agent_metrics), **share}

    def _explain_unfit(self, said: str) -> str | None:
        limit = self.config.max_answer_chars
        if not said:
            return "empty_final_answer"
        if limit is not None and len(said) > limit:
            return f"final_answer_too_long: {len(said)} characters, and max_answer_chars is {limit}"
        return None

    async def _judge(self, body: LLMJudgeVerifyRequest, said: str, evaluations: list[LabelledEvaluation]) -> float:
        config = self.config
        question = self._find_question(body)
        expected = body.expected_answer
        limit = config.extraction_length_threshold
        own_patterns = body.patterns if config.use_per_record_regex else []
        is_long = bool(own_patterns) and limit is not None and len(expected) > limit
        patterns = own_patterns or ([config.response_extract_regex] if config.response_extract_regex else [])
        answer = said if is_long else extraction.extract(patterns, said)

        undecided: NoVerdict | None = None
        try:
            is_equal = await self._is_equal(question, expected, answer, evaluations)
        except NoVerdict as error:
            is_equal = False
            undecided = error
        if is_equal:
            if is_long or not config.check_twice_swap:
                return 1.0
            return 1.0 if await self._is_equal(question, answer, expected, evaluations) else config.reward_if_swap_fails
        has_second_chance = config.check_full_generation_on_fail and own_patterns and not is_long
        if has_second_chance and await self._is_equal(question, expected, said, evaluations):
            return config.reward_if_full_generation_succeeds
        if undecided is not None:
            raise undecided
        return 0.0

    def _find_question(self, body: LLMJudgeVerifyRequest) -> str:
        if body.question is not None:
            return body.question
        pattern = self.config.question_extract_regex
        return extraction.extract([pattern] if pattern else [], extraction.last_user_text(body.responses_create_params))

    async def _is_equal(self, question: str, first: str, second: str, evaluations: list[LabelledEvaluation]) -> bool:
        """Ask the judge, and keep what it said; NoVerdict if it did not decide."""
        config = self.config
        values = {"question": question, "expected_answer": first, "generated_answer": second}
        messages = [{"role": "user", "content": extraction.fill_template(self._template, values)}]
        if config.judge_system_message is not None:
            messages.insert(0, {"role": "system", "content": config.judge_system_message})
        labels = (config.judge_equal_label, config.judge_not_equal_label)
        try:
            async with self._places:
                label, asked = await ask_for_verdict(
                    self.server_client,
                    server_name=config.judge_model_server.name,
                    messages=messages,
                    responses_create_params=config.judge_responses_create_params,
                    labels=labels,
                )
        except NoVerdict as error:
            issues = _list_issues(error.evaluation, labels)
            evaluations.append(LabelledEvaluation(**dict(error.evaluation), judgement_parsing_issues=issues))
            raise
        issues = _list_issues(asked, labels)
        evaluations.append(LabelledEvaluation(**dict(asked), verdict_label=label, judgement_parsing_issues=issues))
        return label == config.judge_equal_label != config.judge_not_equal_label


def _list_issues(evaluation: JudgeEvaluation, labels: tuple[str, str]) -> list[str]:
    """Return what is odd about a judge's reply, by the names that NeMo Gym gives it."""
    found = find_labels(evaluation.response, labels)
    has_text = bool(grading.strip_thinking(grading.assistant_text(evaluation.response)))
    issues = {
        "truncated_judge_output": evaluation.response.status == "incomplete",
        "unparseable_judge_output": not has_text,
        "no_verdict": has_text and not found,
        "conflicting_verdicts": len(set(found)) > 1,
        "repeated_verdict": len(found) > len(set(found)),
    }
    return [name for name, is_so in issues.items() if is_so]


if __name__ == "__main__":
    LLMJudgeResourcesServer.run_webserver()
