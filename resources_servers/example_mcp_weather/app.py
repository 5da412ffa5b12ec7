# SPDX-License-Identifier: Apache-2.0
"""An environment whose tool is offered twice: as a route, and over MCP at `/mcp` for agents that are programs.

`expose_tools_over_mcp` in the config is all it takes. The model has to call the tool and to repeat its sentence; the
calls are remembered by session, so a response cannot be scored again later.
"""

from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.session_store import SessionStore


class ExampleMCPWeatherResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment; its tools are offered over MCP by default."""

    expose_tools_over_mcp: bool = True
    """Offer the tools over MCP as well."""


class GetWeatherRequest(BaseModel):
    """Arguments of `get_weather`."""

    city: str


class Weather(BaseModel):
    """What `get_weather` tells."""

    weather: str


class VerifierMetadata(BaseModel, extra="allow"):
    """What a row says about its answer."""

    expected_city: str = "Paris"


class ExampleMCPWeatherVerifyRequest(BaseVerifyRequest):
    """A question about the weather of a city, and the response to it."""

    verifier_metadata: VerifierMetadata = Field(default_factory=VerifierMetadata)


class ExampleMCPWeatherVerifyResponse(ExampleMCPWeatherVerifyRequest, BaseVerifyResponse):
    """The reward, and what it comes from."""

    expected_weather: str
    tool_call_seen: bool
    final_response_mentions_weather: bool


class ExampleMCPWeatherResourcesServer(SimpleResourcesServer):
    """One tool, `get_weather`, and a verifier that knows which cities it was asked for."""

    REVERIFY_MODE = ReverifyMode.UNSUPPORTED
    config: ExampleMCPWeatherResourcesServerConfig
    _cities: SessionStore[list[str]] = PrivateAttr(default_factory=SessionStore)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tool."""
        app = super().setup_webserver()
        app.post("/get_weather")(self.get_weather)
        return app

    async def seed_session(self, request: Request, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:  # type: ignore[override]
        """Begin a session without calls."""
        self._cities[request.session[SESSION_ID_KEY]] = []
        return BaseSeedSessionResponse()

    async def get_weather(self, request: Request, body: GetWeatherRequest) -> Weather:
        """Get the weather of a city."""
        self._cities.get_or_create(request.session[SESSION_ID_KEY], list).append(body.city)
        return Weather(weather=describe_weather(body.city))

    async def verify(  # type: ignore[override]
        self, request: Request, body: ExampleMCPWeatherVerifyRequest
    ) -> ExampleMCPWeatherVerifyResponse:
        """Give 1 if the tool was asked for the city, and the model says what it told."""
        city = body.verifier_metadata.expected_city
        expected = describe_weather(city)
        asked = {one.casefold() for one in self._cities.of_request(request)}
        said = grading.strip_thinking(grading.assistant_text(body.response))
        is_seen = city.casefold() in asked
        is_said = expected.casefold() in said.casefold()
        extras: dict[str, Any] = {
            "expected_weather": expected,
            "tool_call_seen": is_seen,
            "final_response_mentions_weather": is_said,
        }
        return ExampleMCPWeatherVerifyResponse(**dict(body), **extras, reward=float(is_seen and is_said))


def describe_weather(city: str) -> str:
    """Return what the tool tells: the weather is the same everywhere."""
    return f"The weather in {city} is sunny and 72 F."


if __name__ == "__main__":
    ExampleMCPWeatherResourcesServer.run_webserver()
