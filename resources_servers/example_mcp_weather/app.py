# SPDX-License-Identifier: Apache-2.0
"""An environment whose tool is offered twice: as a route, and over MCP at `/mcp` for agents that are programs.

`expose_tools_over_mcp` in the config is all it takes. It is the environment `example_single_tool_call` with made-up
weather, so the model has to call the tool: an answer is right if it names the condition and the temperature.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse
from resources_servers.example_mcp_weather.weather import WEATHER, require_known_city
from resources_servers.example_single_tool_call.app import ExampleSingleToolCallResourcesServer, GetWeatherRequest


class ExampleMCPWeatherResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment; its tools are offered over MCP by default."""

    expose_tools_over_mcp: bool = True
    """Offer the tools over MCP as well."""


class Weather(BaseModel):
    """What `get_weather` tells; `error` if it does not know the city."""

    city: str
    condition: str | None = None
    temperature_celsius: int | None = None
    error: str | None = None


class ExampleMCPWeatherVerifyRequest(BaseVerifyRequest):
    """A question about the weather of a city, and the response to it."""

    city: Annotated[str, AfterValidator(require_known_city)]


class ExampleMCPWeatherVerifyResponse(ExampleMCPWeatherVerifyRequest, BaseVerifyResponse):
    """The reward, and what an answer had to name."""

    expected_condition: str
    expected_temperature_celsius: int


class ExampleMCPWeatherResourcesServer(ExampleSingleToolCallResourcesServer):
    """One tool, `get_weather`, and a verifier that knows its answers."""

    config: ExampleMCPWeatherResourcesServerConfig

    async def get_weather(self, body: GetWeatherRequest) -> Weather:  # type: ignore[override]
        """Get the weather of a city."""
        if body.city not in WEATHER:
            return Weather(city=body.city, error=f"unknown city; known are {', '.join(WEATHER)}")
        condition, temperature = WEATHER[body.city]
        return Weather(city=body.city, condition=condition, temperature_celsius=temperature)

    async def verify(self, body: ExampleMCPWeatherVerifyRequest) -> ExampleMCPWeatherVerifyResponse:  # type: ignore[override]
        """Give 1 to a last message that names condition and temperature, else 0."""
        condition, temperature = WEATHER[body.city]
        answer = grading.last_assistant_text(body.response).replace("\N{MINUS SIGN}", "-")
        is_right = condition in answer.lower() and str(temperature) in re.findall(r"-?\d+", answer)
        expected = {"expected_condition": condition, "expected_temperature_celsius": temperature}
        return ExampleMCPWeatherVerifyResponse(**dict(body), **expected, reward=float(is_right))


if __name__ == "__main__":
    ExampleMCPWeatherResourcesServer.run_webserver()
