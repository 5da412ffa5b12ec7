# SPDX-License-Identifier: Apache-2.0
from typing import Any

from fastapi import FastAPI, Request, Response

from nemo_gym.base_responses_api_agent import Body
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from responses_api_agents.simple_agent.app import (
    SimpleAgent,
    SimpleAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
)


class PatientAgentConfig(SimpleAgentConfig):
    tries: int = 2
    max_steps: int = 3


class PatientAgent(SimpleAgent):
    config: PatientAgentConfig
    tried: list[int] = []

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.get("/tried")(self.get_tried)
        return app

    async def get_tried(self) -> list[int]:
        return self.tried

    async def responses(
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        for attempt in range(self.config.tries):
            self.tried.append(attempt)
            answer = await super().responses(request, response, body)
            if answer.output_text:
                break
        return answer

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:
        result: Any = await super().run(request, body)
        return result.model_copy(update={"tries": len(self.tried)})


if __name__ == "__main__":
    PatientAgent.run_webserver()
