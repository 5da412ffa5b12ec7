# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks play with: a task with one tool, its resources server, two model servers, a long talk."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, PrivateAttr

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.testing import reply

_CITY_TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city right now.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The name of the city."}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def weather_task() -> dict[str, Any]:
    """A task that takes one tool call."""
    question = [
        {"role": "developer", "content": "You help people to choose what to wear. Look before you answer."},
        {"role": "user", "content": "I am in San Francisco. Do I need a coat tonight?"},
    ]
    return {"responses_create_params": {"input": question, "tools": [_CITY_TOOL], "parallel_tool_calls": False}}


def conversation(items: int) -> list[dict[str, Any]]:
    """A talk of `items` items, rounded up to whole turns: question, thought, call, result, answer."""
    turn: list[dict[str, Any]] = [
        {"role": "user", "content": "And tomorrow? " * 8},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "They ask again. " * 8}]},
        {
            "type": "function_call",
            "id": "fc",
            "call_id": "call",
            "name": "get_weather",
            "arguments": '{"city": "Oslo"}',
        },
        {"type": "function_call_output", "call_id": "call", "output": '{"weather": "cold"}'},
        {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Cold again. " * 8, "annotations": []}],
        },
    ]
    return turn * -(-items // len(turn))


class City(BaseModel):
    city: str


class Weather(BaseModel):
    city: str
    weather: str


class WeatherServer(SimpleResourcesServer):
    """A world with one tool."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/get_weather")(self.get_weather)
        return app

    async def get_weather(self, body: City) -> Weather:
        return Weather(city=body.city, weather="cold")

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


class ConstantModel(SimpleResponsesAPIModel):
    """A model server that always gives the same reply: what is left is the cost of a model server as such."""

    _reply: NeMoGymResponse = PrivateAttr(default_factory=lambda: reply("cold"))

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        return self._reply

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        raise NotImplementedError


class EndpointModelConfig(BaseResponsesAPIModelConfig):
    """Config of a model server in front of a Responses endpoint."""

    base_url: str
    """Of the endpoint, with its `/v1`."""


class EndpointModel(ConstantModel):
    """A model server that passes requests on to an endpoint."""

    config: EndpointModelConfig
    _endpoint: NeMoGymAsyncOpenAI = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._endpoint = NeMoGymAsyncOpenAI(base_url=self.config.base_url, api_key="none")

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        answer = await self._endpoint.create_response(**body.model_dump(exclude_unset=True))
        return NeMoGymResponse.model_validate(answer)
