# SPDX-License-Identifier: Apache-2.0
"""Calculations with tools that follow their own laws of arithmetic: only calling them gives the results.

A response is worth 1 if its last message gives every result that the task asks for. How results were found does not
matter. The tools are the functions of `calculators`, each with its name, its description and its parameters.
"""

import math
import sys
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

    relative_tolerance: float = Field(1e-4, ge=0)
    """How far a number in an answer may be from the result, relative to it."""


def _as_list(value: Any) -> Any:
    """Make a list of one value or several, as they are or as JSON text."""
    parsed = grading.parse_json_text(value)
    return parsed if isinstance(parsed, list) else [parsed]


class MathAdvancedCalculationsVerifyRequest(BaseVerifyRequest):
    """A task with the results it asks for, and the response to it."""

    ground_truth: Annotated[list[FiniteFloat], BeforeValidator(_as_list), Field(min_length=1)]
    id: int | str | None = None


class MathAdvancedCalculationsResourcesServer(SimpleResourcesServer):
    """Eleven calculators, and a verifier that looks for numbers."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    config: MathAdvancedCalculationsResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app with a route for every calculator."""
        app = super().setup_webserver()
        for name, calculator in CALCULATORS.items():
            app.post(f"/{name}")(make_route(name, calculator))
        return app

    async def verify(self, body: MathAdvancedCalculationsVerifyRequest) -> BaseVerifyResponse:
        """Give 1 to a response whose last message has all results."""
        text = grading.strip_thinking(grading.last_assistant_text(body.response))
        said = {number for number in grading.all_numbers(text) if abs(number) <= sys.float_info.max}
        tolerance = self.config.relative_tolerance
        found = all(
            any(math.isclose(number, wanted, rel_tol=tolerance, abs_tol=1e-9) for number in said)
            for wanted in body.ground_truth
        )
        return BaseVerifyResponse(**dict(body), reward=float(found))


if __name__ == "__main__":
    MathAdvancedCalculationsResourcesServer.run_webserver()
