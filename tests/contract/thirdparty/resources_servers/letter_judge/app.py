# SPDX-License-Identifier: Apache-2.0
import asyncio
from contextlib import nullcontext
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)


class Labels(BaseModel):
    same: str = "[[YES]]"
    different: str = "[[NO]]"


class LetterJudgeConfig(BaseResourcesServerConfig):
    REVERIFY_MODE = ReverifyMode.STATELESS

    name: str = "letter_judge"
    judge_model_server: ModelServerRef
    second_opinion: ModelServerRef | None = None
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    judge_prompt_template: str = "Expected {expected}\nFound {generated}"
    judge_endpoint_max_concurrency: int | None = 8
    labels: Labels = Field(default_factory=Labels)


class LetterJudgeRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    uuid: int | str | None = None
    expected_answer: str | None = None


class LetterJudgeVerifyRequest(LetterJudgeRunRequest, BaseVerifyRequest):
    pass


class Evaluation(BaseModel):
    responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    response: NeMoGymResponse
    verdict: str | None = None


class LetterJudgeVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    uuid: int | str | None = None
    expected_answer: str
    status: Literal["judged", "empty"] = "judged"
    judge_evaluations: list[Evaluation] = []


class LetterJudgeServer(SimpleResourcesServer):
    config: LetterJudgeConfig

    def model_post_init(self, context: Any) -> None:
        limit = self.config.judge_endpoint_max_concurrency
        self._judge_semaphore = nullcontext() if limit is None else asyncio.Semaphore(value=limit)
        super().model_post_init(context)

    async def verify(self, body: LetterJudgeVerifyRequest) -> LetterJudgeVerifyResponse:
        generated = _last_assistant_text(body)
        payload = body.model_dump()
        payload.pop("expected_answer", None)
        if not generated:
            return LetterJudgeVerifyResponse(
                **payload, reward=0.0, expected_answer=body.expected_answer or "", status="empty"
            )
        accepted, evaluation = await self._ask_judge(body.expected_answer or "", generated)
        return LetterJudgeVerifyResponse(
            **payload,
            reward=1.0 if accepted else 0.0,
            expected_answer=body.expected_answer or "",
            judge_evaluations=[evaluation],
        )

    async def _ask_judge(self, expected: str, generated: str) -> tuple[bool, Evaluation]:
        params = self.config.judge_responses_create_params.model_copy(deep=True)
        prompt = self.config.judge_prompt_template.format(expected=expected, generated=generated)
        params.input = [NeMoGymEasyInputMessage(role="user", content=prompt)]
        async with self._judge_semaphore:
            response = await call_judge(
                self.server_client,
                server_name=self.config.judge_model_server.name,
                url_path="/v1/responses",
                json=params,
                response_model=NeMoGymResponse,
            )
        evaluation = Evaluation(responses_create_params=params, response=response)
        try:
            text = response.output[-1].content[-1].text
        except (IndexError, AttributeError) as error:
            raise JudgeError("the judge said nothing") from error
        yes, no = text.find(self.config.labels.same), text.find(self.config.labels.different)
        evaluation.verdict = "same" if yes >= 0 and (no < 0 or yes < no) else "different"
        return evaluation.verdict == "same", evaluation


def _last_assistant_text(body: BaseVerifyRequest) -> str:
    for item in reversed(body.response.output):
        if getattr(item, "type", None) == "message" and getattr(item, "role", None) == "assistant":
            texts = [c.text for c in item.content if getattr(c, "type", None) == "output_text"]
            return "\n".join(texts).strip()
    return ""


if __name__ == "__main__":
    LetterJudgeServer.run_webserver()
