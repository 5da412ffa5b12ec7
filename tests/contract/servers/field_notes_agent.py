# SPDX-License-Identifier: Apache-2.0
"""An agent as others write them: it looks around, asks a scout, shortens its context, and tells all of it."""

import time
from typing import Any

from fastapi import Body, Request
from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_observability import (
    AgentEpisode,
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    SandboxObservation,
    ToolCallObservation,
    TrajectoryRecord,
    TrajectoryTurn,
)
from nemo_gym.server_utils import get_response_json, raise_for_status


class FieldNotesConfig(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef
    resources_server: ResourcesServerRef
    always_observe: bool = False


class FieldNotesRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class FieldNotesVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class FieldNotesAgent(SimpleResponsesAPIAgent):
    config: FieldNotesConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        return await self._ask(self.url_path_for_request("/v1/responses", request), body)

    async def run(self, request: Request, body: FieldNotesRunRequest) -> FieldNotesVerifyResponse:
        episode = await self._play(body)
        verified = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path=self.url_path_for_run("/verify", body),
            json={**body.model_dump(), "response": episode.response.model_dump()},
        )
        await raise_for_status(verified)
        result = FieldNotesVerifyResponse.model_validate(await get_response_json(verified))
        if self.config.always_observe or self._model_call_capture_enabled():
            result.ng_agent_observations = episode.observations.model_dump(mode="json")
            result.ng_trajectory = self._trajectory(body, episode).model_dump(mode="json")
        return result

    async def _play(self, body: FieldNotesRunRequest) -> AgentEpisode:
        path = self.url_path_for_run("/v1/responses", body)
        said: list[Any] = [NeMoGymEasyInputMessage(role="user", content=body.responses_create_params.input)]
        first = await self._ask(path, self._params(said))
        said += first.output
        call = first.output[-1]
        started_at = time.time()
        looked = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path=f"/{call.name}", json={}
        )
        output = await get_response_json(looked)
        tool = ToolCallObservation(
            invocation_id="main",
            tool_call_id=call.call_id,
            tool_name=call.name,
            sandbox_id="sb-1",
            started_at=started_at,
            completed_at=time.time(),
            timing_source="harness",
            status="completed",
        )
        said.append(NeMoGymFunctionCallOutput(call_id=call.call_id, output=str(output), type="function_call_output"))
        scouted = await self._ask(path, self._params("scout ahead"))
        summary = await self._ask(path, self._params("sum it up"))
        last = await self._ask(path, self._params(said))
        invocations = [
            AgentInvocation(
                invocation_id="main",
                status="completed",
                duration_ms=(time.time() - started_at) * 1000,
                model_calls=[self._ref(first), self._ref(summary), self._ref(last)],
                conversation=[*said, *last.output],
            ),
            AgentInvocation(
                invocation_id="scout",
                parent_invocation_id="main",
                spawned_by_tool_call_id=call.call_id,
                status="failed",
                error_type="Lost",
                model_calls=[self._ref(scouted), ModelCallRef(model_ref=self.config.model_server, response_id="gone")],
            ),
        ]
        compaction = ContextCompactionObservation(
            invocation_id="main",
            observed_at=time.time(),
            trigger="auto",
            tokens_before=900,
            tokens_after=90,
            outcome="completed",
            summary=summary.output_text,
            before_model_call=self._ref(first),
            after_model_call=self._ref(last),
            model_calls=[self._ref(summary)],
        )
        sandbox = SandboxObservation(
            role="agent", sandbox_id="sb-1", provider="docker", outcome="completed", exit_code=0
        )
        return AgentEpisode(
            response=last,
            observations=AgentObservationBundle(
                source="field_notes",
                records=[*invocations, tool, sandbox, compaction],
                gaps=[ObservationGap(code="scout_log_cut", invocation_id="scout", detail="line 3")],
            ),
        )

    def _trajectory(self, body: FieldNotesRunRequest, episode: AgentEpisode) -> TrajectoryRecord:
        identity = {"task_id": body.problem_id, "rollout_id": self.rollout_id_from_run(body) or "unknown"}
        turn = TrajectoryTurn(
            **identity,
            invocation_id="main",
            turn_no=1,
            timestamp=time.time(),
            question=body.responses_create_params.input,
            answer=episode.response.output_text,
            resolved=True,
            step_count=3,
        )
        return TrajectoryRecord(**identity, turns=[turn])

    async def _ask(self, path: str, params: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        reply = await self.server_client.post(server_name=self.config.model_server.name, url_path=path, json=params)
        await raise_for_status(reply)
        return NeMoGymResponse.model_validate(await get_response_json(reply))

    def _params(self, given: Any) -> NeMoGymResponseCreateParamsNonStreaming:
        return NeMoGymResponseCreateParamsNonStreaming(input=given)

    def _ref(self, response: NeMoGymResponse) -> ModelCallRef:
        return ModelCallRef(model_ref=self.config.model_server, response_id=response.id)


if __name__ == "__main__":
    FieldNotesAgent.run_webserver()
