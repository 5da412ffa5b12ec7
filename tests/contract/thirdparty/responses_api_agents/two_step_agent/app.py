# SPDX-License-Identifier: Apache-2.0
import json

from fastapi import Request, Response
from pydantic import ConfigDict, ValidationError

from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
)
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    accumulate_response_usage,
)
from nemo_gym.server_utils import get_response_json, raise_for_status


class TwoStepAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int = 2


class TwoStepRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class TwoStepVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class TwoStepVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class TwoStepAgent(SimpleResponsesAPIAgent):
    config: TwoStepAgentConfig

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),
    ) -> NeMoGymResponse:
        body = body.model_copy(deep=True)
        if isinstance(body.input, str):
            body.input = [NeMoGymEasyInputMessage(role="user", content=body.input)]

        new_outputs, usage = [], None
        model_cookies, tool_cookies = None, request.cookies
        for _ in range(self.config.max_steps):
            turn = body.model_copy(update={"input": body.input + new_outputs})
            model_response = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path=self.url_path_for_request("/v1/responses", request),
                json=turn,
                cookies=model_cookies,
            )
            await raise_for_status(model_response)
            payload = await get_response_json(model_response)
            model_cookies = model_response.cookies
            try:
                answer = NeMoGymResponse.model_validate(payload)
            except ValidationError as e:
                raise RuntimeError(f"bad reply: {json.dumps(payload)}") from e

            new_outputs.extend(answer.output)
            usage = accumulate_response_usage(usage, answer.usage)
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                break
            for call in calls:
                call: NeMoGymResponseFunctionToolCall
                tool_response = await self.server_client.post(
                    server_name=self.config.resources_server.name,
                    url_path=f"/{call.name}",
                    json=json.loads(call.arguments),
                    cookies=tool_cookies,
                )
                tool_cookies = tool_response.cookies
                new_outputs.append(
                    NeMoGymFunctionCallOutput(
                        type="function_call_output",
                        call_id=call.call_id,
                        output=(await tool_response.content.read()).decode(),
                    )
                )

        for name, value in (*tool_cookies.items(), *model_cookies.items()):
            response.set_cookie(name, value if isinstance(value, str) else value.value)

        answer.output = new_outputs
        answer.usage = usage
        return answer

    async def run(self, request: Request, body: TwoStepRunRequest) -> TwoStepVerifyResponse:
        cookies = request.cookies
        seed = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/seed_session",
            json=body.model_dump(),
            cookies=cookies,
        )
        await raise_for_status(seed)
        cookies = seed.cookies

        response = await self.server_client.post(
            server_name=self.config.name,
            url_path=self.url_path_for_run("/v1/responses", body),
            json=body.responses_create_params,
            cookies=cookies,
        )
        await raise_for_status(response)
        cookies = response.cookies

        verify_request = TwoStepVerifyRequest.model_validate(
            body.model_dump() | {"response": await get_response_json(response)}
        )
        verified = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/verify",
            json=verify_request.model_dump(),
            cookies=cookies,
        )
        await raise_for_status(verified)
        return TwoStepVerifyResponse.model_validate(await get_response_json(verified))

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        response = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/aggregate_metrics", json=body
        )
        await raise_for_status(response)
        return AggregateMetrics.model_validate(await get_response_json(response))


if __name__ == "__main__":
    TwoStepAgent.run_webserver()
