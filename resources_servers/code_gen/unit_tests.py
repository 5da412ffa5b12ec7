# SPDX-License-Identifier: Apache-2.0
"""The unit tests of a task, checked when a row comes in."""

import json
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from nemo_gym.code_execution import Harness

HarnessProcess = Literal["auto", "separate", "shared"]


class UnitTests(BaseModel):
    """Inputs and the outputs they should lead to."""

    inputs: list[str] = Field(min_length=1)
    """What a program reads; or, with `fn_name`, the arguments of a function as JSON, one a line."""
    outputs: list[str]
    """What a program prints; or, with `fn_name`, what the function returns, as JSON."""
    fn_name: str | None = None
    harness: str | None = None
    """Code that tests the program, run after it; `fn_name` is then a function of it."""
    entry_points: list[str] | None = None
    """With `harness`: the names that it takes from the program, all others being its own."""
    given: str = ""
    """With `harness`: code whose names the program may use without defining them."""

    @model_validator(mode="after")
    def _check(self) -> "UnitTests":
        if len(self.inputs) != len(self.outputs):
            raise ValueError(f"there are {len(self.inputs)} inputs, but {len(self.outputs)} outputs")
        if self.harness is not None and self.fn_name is None:
            raise ValueError("a harness needs `fn_name`, its function that makes a test")
        if self.fn_name is not None:
            for number, (given, expected) in enumerate(zip(self.inputs, self.outputs, strict=True)):
                _require_json(given.split("\n"), f"inputs[{number}]")
                _require_json([expected], f"outputs[{number}]")
        return self

    def make_harness(self, process: HarnessProcess) -> Harness | None:
        """Return what tests the program, in the process that the config asks for; None if it is only run or called."""
        if self.harness is None:
            return None
        is_apart = self.entry_points is not None if process == "auto" else process == "separate"
        return Harness(self.harness, self.entry_points, self.given, is_apart)


def _require_json(texts: list[str], where: str) -> None:
    for text in texts:
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where} is not JSON, as it must be for a call of a function: {error}") from None
