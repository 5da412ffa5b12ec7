# SPDX-License-Identifier: Apache-2.0
"""Calculations with tools that follow their own laws of arithmetic: only calling them gives the results.

A response is worth 1 if its tool calls gave every result that the task asks for. What its messages say is not read. The
tools are the functions of `calculators`, each with its name, its description and its parameters.
"""

import json
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BeforeValidator, Field, FiniteFloat

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from resources_servers.math_advanced_calculations.calculators import CALCULATORS, make_route


class MathAdvancedCalculationsResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""


def _as_list(value: Any) -> Any:
    """Make a list of one value or several, as they are or as JSON text."""
    parsed = grading.parse_json_text(value)
    return parsed if isinstance(parsed, list) else [parsed]


class MathAdvancedCalculationsVerifyRequest(BaseVerifyRequest):
    """A task with the results it asks for, and the response to it."""

    ground_truth: Annotated[list[FiniteFloat], BeforeValidator(_as_list), Field(min_length=1)]
    id: int | str | None = None


class MathAdvancedCalculationsResourcesServer(SimpleResourcesServer):
    """Eleven calculators, and a verifier that looks for their results."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    config: MathAdvancedCalculationsResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app with a route for every calculator."""
        app = super().setup_webserver()
        for name, calculator in CALCULATORS.items():
            app.post(f"/{name}")(make_route(name, calculator))
        return app

    async def verify(self, body: MathAdvancedCalculationsVerifyRequest) -> BaseVerifyResponse:
        """Give 1 to a response whose tool outputs have every result exactly."""
        outputs = [item.output for item in body.response.output if item.type == "function_call_output"]
        found = {_read_solution(output) for output in outputs}
        return BaseVerifyResponse(**dict(body), reward=float(found.issuperset(body.ground_truth)))


def _read_solution(output: Any) -> float | None:
    """Return the number that a tool answered with; None if it did not."""
    try:
        return float(json.loads(output)["solution"])
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
        return None


if __name__ == "__main__":
    MathAdvancedCalculationsResourcesServer.run_webserver()
