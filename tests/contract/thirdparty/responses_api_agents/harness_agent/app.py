# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from asyncio import Semaphore
from time import time
from typing import Any

from pydantic import ConfigDict, Field

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY, NG_NO_PERSIST_KEY, NG_TERMINAL_KEY
from nemo_gym.rollout_observability import AgentEpisode, AgentInvocation, AgentObservationBundle, ObservationGap


class HarnessAgentConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef
    concurrency: int = 4
    harness_kwargs: dict[str, Any] = Field(default_factory=dict)


class HarnessRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    instance_id: str


class HarnessVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class HarnessVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    seconds: float = 0.0


async def run_harness(base_url: str, instance_id: str, **kwargs: Any) -> str:
    raise NotImplementedError("tests patch this")


class HarnessAgent(SimpleResponsesAPIAgent):
    config: HarnessAgentConfig
    sem: Semaphore = None
    model_config = ConfigDict(arbitrary_types_allowed=True)

    def model_post_init(self, context: Any) -> None:
        self.sem = Semaphore(self.config.concurrency)

    def model_address(self) -> str:
        config = get_first_server_config_dict(self.server_client.global_config_dict, self.config.model_server.name)
        return self.server_client._build_server_base_url(config)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        raise NotImplementedError

    async def run(self, body: HarnessRunRequest = Body()) -> HarnessVerifyResponse:
        async with self.sem:
            start = time()
            base_url = self.resolve_model_base_url(self.config.model_server.name, self.rollout_id_from_run(body))
            try:
                text = await run_harness(base_url, body.instance_id, **self.config.harness_kwargs)
            except asyncio.TimeoutError:  # noqa: UP041
                return self._failed(body, "harness_timeout")
            except ValueError as e:
                return self._failed(body, "bad_task", **{NG_TERMINAL_KEY: True, "why": str(e)})
        episode = AgentEpisode(
            response=self._response(body, text),
            observations=AgentObservationBundle(
                source=self.config.name,
                records=[AgentInvocation(invocation_id=body.instance_id, status="completed")],
                gaps=[ObservationGap(code="no_model_calls")],
            ),
        )
        return HarnessVerifyResponse(
            **body.model_dump(),
            response=episode.response,
            reward=float("solved" in text),
            seconds=time() - start,
            ng_agent_observations=episode.observations.model_dump(mode="json"),
        )

    def _failed(self, body: HarnessRunRequest, kind: str, **extra: Any) -> HarnessVerifyResponse:
        return HarnessVerifyResponse(
            **body.model_dump(),
            **{NG_FAILURE_CLASS_KEY: kind, NG_NO_PERSIST_KEY: False, **extra},
            response=self._response(body, ""),
            reward=0.0,
        )

    def _response(self, body: HarnessRunRequest, text: str) -> NeMoGymResponse:
        content = [NeMoGymResponseOutputText(text=text, annotations=[])] if text else []
        return NeMoGymResponse(
            id=f"resp_{body.instance_id}",
            created_at=int(time()),
            model=body.responses_create_params.model or self.config.model_server.name,
            object="response",
            output=[NeMoGymResponseOutputMessage(id="msg", content=content)],
            parallel_tool_calls=body.responses_create_params.parallel_tool_calls,
            tool_choice=body.responses_create_params.tool_choice,
            tools=body.responses_create_params.tools,
        )


if __name__ == "__main__":
    HarnessAgent.run_webserver()
