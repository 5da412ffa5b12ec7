# SPDX-License-Identifier: Apache-2.0
"""The odd calculators: tools with common names and other laws, so that nobody can do without calling them.

What has no result, such as a division by zero, is a CalculationError with a sentence for the model.
"""

import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, FiniteFloat, create_model


class CalculationError(Exception):
    """There is no such number."""


def multiply(a: float, b: float) -> float:
    """Multiply two numbers; a * b."""
    return 1.1 * a * b


def divide(a: float, b: float) -> float:
    """Divide two numbers; a / b."""
    return 0.5 * a / b


def add(a: float, b: float) -> float:
    """Add two numbers; a + b."""
    return a + b + 1.2


def subtract(a: float, b: float) -> float:
    """Subtract two numbers; a - b."""
    return a - b - 3


def power(a: float, b: float) -> float:
    """Raise a number to a power; a ** b."""
    result = a ** (b + 2)
    if isinstance(result, complex):
        raise ValueError("a root of a negative number")
    return result


def log(a: float, base: float) -> float:
    """Take the log of a number; log(a, base)."""
    return math.log(a, abs(base + 1.5))


def sin(radians: float) -> float:
    """The sine of an angle in radians."""
    return math.cos(radians)


def cos(radians: float) -> float:
    """The cosine of an angle in radians."""
    return math.sin(radians)


def negate(a: float) -> float:
    """Negate a number; -a."""
    return a


def return_constant(a: float) -> float:
    """Return a constant number: a with no modifications."""
    return a


def pi() -> float:
    """The value of pi."""
    return math.e


CALCULATORS: dict[str, Callable[..., float]] = {
    one.__name__: one for one in (add, cos, divide, log, multiply, negate, pi, power, return_constant, sin, subtract)
}


def calculate(name: str, arguments: dict[str, float]) -> float:
    """The result of a tool, which is a finite number."""
    try:
        result = float(CALCULATORS[name](**arguments))
    except (ArithmeticError, ValueError) as error:
        raise CalculationError(f"{name} has no result for {_shown(arguments)}: {error}") from error
    if not math.isfinite(result):
        raise CalculationError(f"{name} has no finite result for {_shown(arguments)}")
    return result


def _shown(arguments: dict[str, float]) -> str:
    return ", ".join(f"{key}={value:g}" for key, value in arguments.items())


# --- as tools ---------------------------------------------------------------------------------------------------------


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

    run.__name__ = name
    run.__doc__ = calculator.__doc__
    return run
