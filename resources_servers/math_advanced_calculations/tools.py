# SPDX-License-Identifier: Apache-2.0
"""Calculators as tools: a route that takes a number for each parameter of a function."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, FiniteFloat, create_model

from resources_servers.math_advanced_calculations.calculators import CalculationError, calculate


class Solution(BaseModel):
    """What a calculator says: a number, or why there is none."""

    solution: float | None
    error: str | None = None


def make_route(name: str, calculator: Callable[..., float]) -> Callable[..., Awaitable[Solution]]:
    """Return the route that runs a calculator."""
    numbers: dict[str, Any] = dict.fromkeys(inspect.signature(calculator).parameters, (FiniteFloat, ...))
    arguments: Any = create_model(f"{name}_arguments", **numbers)

    async def run(body: arguments) -> Solution:
        try:
            return Solution(solution=calculate(name, body.model_dump()))
        except CalculationError as error:
            return Solution(solution=None, error=str(error))

    run.__name__, run.__doc__ = name, calculator.__doc__
    return run
