# SPDX-License-Identifier: Apache-2.0
"""An environment whose tool is offered twice: as a route, and over MCP at `/mcp` for agents that are programs.

`expose_tools_over_mcp` in the config is all it takes. The weather is made up, so that it has to be asked for: an answer
is right if it names both what the sky does and how warm it is.
"""

import re
from typing import ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, field_validator

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint

WEATHER = {
    "Casablanca": ("windy", 23),
    "Lima": ("foggy", 17),
    "Nairobi": ("sunny", 26),
    "Osaka": ("rainy", 19),
    "Reykjavik": ("snowy", -4),
    "Tromsø": ("cloudy", 2),
    "Wellington": ("stormy", 11),
}
_NUMBER = re.compile(r"-?\d+")


class ExampleMCPWeatherResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment; its tools are offered over MCP unless it says otherwise."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    expose_tools_over_mcp: bool = True


class GetWeatherRequest(BaseModel):
    """Arguments of `get_weather`."""

    city: str


class GetWeatherResponse(BaseModel):
    """What `get_weather` tells; `error` if it does not know the city."""

    city: str
    condition: str | None = None
    temperature_celsius: int | None = None
    error: str | None = None


class ExampleMCPWeatherRunRequest(BaseRunRequest):
    """A row: the question, and the city that it is about."""

    city: str

    @field_validator("city")
    @classmethod
    def _require_known_city(cls, city: str) -> str:
        if city not in WEATHER:
            raise ValueError(f"unknown city {city!r}; known are {', '.join(WEATHER)}")
        return city


class ExampleMCPWeatherVerifyRequest(ExampleMCPWeatherRunRequest, BaseVerifyRequest):
    """A row and the response to it."""


class ExampleMCPWeatherVerifyResponse(ExampleMCPWeatherVerifyRequest, BaseVerifyResponse):
    """The reward, and what an answer had to name."""

    expected_condition: str
    expected_temperature_celsius: int


class ExampleMCPWeatherResourcesServer(SimpleResourcesServer):
    """One tool, `get_weather`, and a verifier that knows what it tells."""

    config: ExampleMCPWeatherResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tool; the framework offers it over MCP as well."""
        app = super().setup_webserver()
        app.post("/get_weather")(self.get_weather)
        return app

    async def get_weather(self, body: GetWeatherRequest) -> GetWeatherResponse:
        """Get the weather of a city."""
        if body.city not in WEATHER:
            return GetWeatherResponse(city=body.city, error=f"unknown city; known are {', '.join(WEATHER)}")
        condition, temperature = WEATHER[body.city]
        return GetWeatherResponse(city=body.city, condition=condition, temperature_celsius=temperature)

    async def verify(self, body: ExampleMCPWeatherVerifyRequest) -> ExampleMCPWeatherVerifyResponse:  # type: ignore[override]
        """Give 1 to a last message that names condition and temperature, else 0."""
        condition, temperature = WEATHER[body.city]
        answer = grading.last_assistant_text(body.response).replace("\N{MINUS SIGN}", "-")
        is_right = condition in answer.lower() and str(temperature) in _NUMBER.findall(answer)
        return ExampleMCPWeatherVerifyResponse(
            **dict(body),
            reward=float(is_right),
            expected_condition=condition,
            expected_temperature_celsius=temperature,
        )


if __name__ == "__main__":
    ExampleMCPWeatherResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = ExampleMCPWeatherResourcesServer.run_webserver()
