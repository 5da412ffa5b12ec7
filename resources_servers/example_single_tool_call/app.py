# SPDX-License-Identifier: Apache-2.0
"""The smallest environment with a tool: it tells the weather of a city, which is always cold.

It shows how a tool becomes a route. Nothing is scored: every response is worth 1.
"""

from fastapi import FastAPI
from pydantic import BaseModel

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer


class GetWeatherRequest(BaseModel):
    """Arguments of `get_weather`."""

    city: str


class GetWeatherResponse(BaseModel):
    """What `get_weather` tells."""

    city: str
    weather_description: str


class ExampleSingleToolCallResourcesServer(SimpleResourcesServer):
    """One tool, `get_weather`, and a verifier that always gives 1."""

    REVERIFY_MODE = ReverifyMode.STATELESS

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tool."""
        app = super().setup_webserver()
        app.post("/get_weather")(self.get_weather)
        return app

    async def get_weather(self, body: GetWeatherRequest) -> GetWeatherResponse:
        """Get the weather of a city."""
        return GetWeatherResponse(city=body.city, weather_description=f"The weather in {body.city} is cold.")

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Every response is worth 1."""
        return BaseVerifyResponse(**dict(body), reward=1.0)


if __name__ == "__main__":
    ExampleSingleToolCallResourcesServer.run_webserver()
