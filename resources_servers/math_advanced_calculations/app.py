# SPDX-License-Identifier: Apache-2.0
"""Calculations with tools that follow other laws than ours: only who calls them finds the results.

A response is worth 1 if its last message gives every result that the task asks for. How results were found does not
matter.
"""

import json
import math
import re
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat

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
from resources_servers.math_advanced_calculations.calculators import CalculationError, calculate

_NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][-+]?[0-9]{1,3})?"
)


class MathAdvancedCalculationsResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    relative_tolerance: float = Field(1e-4, ge=0)
    """How far a number in an answer may be from the result, as a part of it."""


class TwoNumbers(BaseModel):
    """Arguments of `add`, `divide`, `multiply`, `power` and `subtract`."""

    a: FiniteFloat
    b: FiniteFloat


class OneNumber(BaseModel):
    """Arguments of `negate` and `return_constant`."""

    a: FiniteFloat


class Logarithm(BaseModel):
    """Arguments of `log`."""

    a: FiniteFloat
    base: FiniteFloat


class Angle(BaseModel):
    """Arguments of `sin` and `cos`."""

    radians: FiniteFloat


class NoArguments(BaseModel):
    """Arguments of `pi`: none."""


class Solution(BaseModel):
    """What a calculator says: a number, or why there is none."""

    solution: float | None
    error: str | None = None


def _parsed(value: Any) -> Any:
    """One value or several, as they are or as JSON text, become a list."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"ground_truth is text, but not JSON: {error}") from None
    return value if isinstance(value, list) else [value]


class MathAdvancedCalculationsRunRequest(BaseRunRequest):
    """A task, and the results it asks for."""

    ground_truth: Annotated[list[FiniteFloat], BeforeValidator(_parsed), Field(min_length=1)]
    id: int | str | None = None


class MathAdvancedCalculationsVerifyRequest(MathAdvancedCalculationsRunRequest, BaseVerifyRequest):
    """A task and the response to it."""


class MathAdvancedCalculationsResourcesServer(SimpleResourcesServer):
    """Eleven calculators, and a verifier that looks for numbers."""

    config: MathAdvancedCalculationsResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """The app with the tools."""
        app = super().setup_webserver()
        for tool in (
            self.add,
            self.cos,
            self.divide,
            self.log,
            self.multiply,
            self.negate,
            self.pi,
            self.power,
            self.return_constant,
            self.sin,
            self.subtract,
        ):
            app.post(f"/{tool.__name__}")(tool)
        return app

    async def add(self, body: TwoNumbers) -> Solution:
        """Add two numbers; a + b."""
        return _solution("add", body)

    async def cos(self, body: Angle) -> Solution:
        """The cosine of an angle in radians."""
        return _solution("cos", body)

    async def divide(self, body: TwoNumbers) -> Solution:
        """Divide two numbers; a / b."""
        return _solution("divide", body)

    async def log(self, body: Logarithm) -> Solution:
        """Take the log of a number; log(a, base)."""
        return _solution("log", body)

    async def multiply(self, body: TwoNumbers) -> Solution:
        """Multiply two numbers; a * b."""
        return _solution("multiply", body)

    async def negate(self, body: OneNumber) -> Solution:
        """Negate a number; -a."""
        return _solution("negate", body)

    async def pi(self, body: NoArguments) -> Solution:
        """The value of pi."""
        return _solution("pi", body)

    async def power(self, body: TwoNumbers) -> Solution:
        """Raise a number to a power; a ** b."""
        return _solution("power", body)

    async def return_constant(self, body: OneNumber) -> Solution:
        """Return a constant number: a with no modifications."""
        return _solution("return_constant", body)

    async def sin(self, body: Angle) -> Solution:
        """The sine of an angle in radians."""
        return _solution("sin", body)

    async def subtract(self, body: TwoNumbers) -> Solution:
        """Subtract two numbers; a - b."""
        return _solution("subtract", body)

    async def verify(self, body: MathAdvancedCalculationsVerifyRequest) -> BaseVerifyResponse:
        """1 if the last message gives all results."""
        said = numbers_in(grading.strip_thinking(grading.last_assistant_text(body.response)))
        tolerance = self.config.relative_tolerance
        found = all(any(_is_close(number, wanted, tolerance) for number in said) for wanted in body.ground_truth)
        return BaseVerifyResponse(
            responses_create_params=body.responses_create_params, response=body.response, reward=float(found)
        )


def numbers_in(text: str) -> set[float]:
    """All numbers that are written in a text."""
    return {float(match[0].replace(",", "").replace("\u2212", "-")) for match in _NUMBER.finditer(text)}


def _is_close(number: float, wanted: float, tolerance: float) -> bool:
    return math.isclose(number, wanted, rel_tol=tolerance, abs_tol=1e-9)


def _solution(name: str, arguments: BaseModel) -> Solution:
    try:
        return Solution(solution=calculate(name, arguments.model_dump()))
    except CalculationError as error:
        return Solution(solution=None, error=str(error))


if __name__ == "__main__":
    MathAdvancedCalculationsResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = MathAdvancedCalculationsResourcesServer.run_webserver()
