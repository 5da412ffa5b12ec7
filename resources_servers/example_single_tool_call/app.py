# SPDX-License-Identifier: Apache-2.0
"""The smallest environment with a tool: it tells the weather of a city, which is always cold.

It shows how a tool becomes a route. A response that calls the tool is worth 1, whatever the city.
"""

from fastapi import FastAPI
from pydantic import BaseModel

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer


class GetWeatherRequest(BaseModel):
    """Arguments of `get_weather`."""

    city: str


class GetWeatherResponse(BaseModel):
    """What `get_weather` tells."""

    city: str
    weather_description: str


class ExampleSingleToolCallResourcesServer(SimpleResourcesServer):
    """One tool, `get_weather`, and a verifier that asks whether it was called."""

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
        """Give 1 to a response that calls the tool."""
        is_called = any(call.name == "get_weather" for call in grading.function_calls(body.response))
        return BaseVerifyResponse(**dict(body), reward=float(is_called))


if __name__ == "__main__":
    ExampleSingleToolCallResourcesServer.run_webserver()
