# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks play with: tasks, their resources servers, a model server, a long talk."""

import re
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, PrivateAttr

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
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


_BOXED_LETTER = re.compile(r"\\boxed\{([A-Z])\}")


def weather_task() -> dict[str, Any]:
    """A task that takes one tool call."""
    question = [
        {"role": "developer", "content": "You help people to choose what to wear. Look before you answer."},
        {"role": "user", "content": "I am in San Francisco. Do I need a coat tonight?"},
    ]
    return {"responses_create_params": {"input": question, "tools": [_CITY_TOOL], "parallel_tool_calls": False}}


def choice_task() -> dict[str, Any]:
    """A question with one right letter, which takes no tool."""
    question = (
        "Answer the question below. The last line must be the letter of your choice in \\boxed{}.\n\n"
        "Which of these gases makes up most of the air?\n\nA: nitrogen\nB: oxygen\nC: argon\nD: carbon dioxide"
    )
    params = {"input": [{"role": "user", "content": question}]}
    return {"responses_create_params": params, "expected_answer": "A"}


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


class ChoiceRequest(BaseVerifyRequest):
    expected_answer: str


class ChoiceReply(BaseVerifyResponse):
    expected_answer: str
    extracted_answer: str | None


class ChoiceServer(SimpleResourcesServer):
    """A world of questions with one right letter."""

    async def verify(self, body: ChoiceRequest) -> ChoiceReply:  # type: ignore[override]
        found = _BOXED_LETTER.search(body.response.output_text)
        answer = found[1] if found else None
        reward = float(answer == body.expected_answer)
        return ChoiceReply(**body.model_dump(), extracted_answer=answer, reward=reward)


class ConstantModel(SimpleResponsesAPIModel):
    """A model server that always gives the same reply: what is left is the cost of a model server as such."""

    _reply: NeMoGymResponse = PrivateAttr(default_factory=lambda: reply("cold"))

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        return self._reply

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        raise NotImplementedError
