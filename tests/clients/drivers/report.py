# SPDX-License-Identifier: Apache-2.0
"""What every driver shares: checks that are named by a capability, and a report of them as JSON.

A driver runs in the virtual environment of its client: `python openai.py URL`, where URL is that of a model server.
"""

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

URL = sys.argv[1]
OPENAI_URL = f"{URL}/v1"
# The smallest PNG: one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_checks: dict[str, Callable[[], Any]] = {}


def check(capability: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Name the capability that a function checks."""

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        _checks[capability] = function
        return function

    return add


def raises(name: str, function: Callable[[], Any]) -> BaseException:
    """Return what `function` raises, which must be an error of this class."""
    try:
        function()
    except Exception as error:
        if name in [base.__name__ for base in type(error).__mro__]:
            return error
        raise
    raise AssertionError(f"no {name} was raised")


def report() -> None:
    """Run all checks; print for each capability an empty text, or what went wrong."""
    results: dict[str, str] = {}
    for capability, function in _checks.items():
        try:
            if inspect.iscoroutinefunction(function):
                asyncio.run(function())
            else:
                function()
            results[capability] = ""
        except BaseException:
            results[capability] = traceback.format_exc()[-2500:]
    print("\n" + json.dumps(results))
