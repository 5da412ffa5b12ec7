# SPDX-License-Identifier: Apache-2.0
"""The unit tests of a task; run a program against them, one by one until the first that fails.

The program runs in a sandbox and never sees what is expected of it: answers are compared here, or by a harness.
"""

import asyncio
import base64
import json
import math
import re
import zlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from nemo_gym.code_execution import CodePool, CodeResult, Harness

HarnessProcess = Literal["auto", "separate", "shared"]
WRONG_ANSWER = -2
TIME_LIMIT = -3
RUNTIME_ERROR = -4
MESSAGES = {
    WRONG_ANSWER: "Wrong Answer",
    TIME_LIMIT: "Time Limit Exceeded",
    RUNTIME_ERROR: "Runtime Error",
}
# Of printed numbers, and of returned ones.
PRINTED_TOLERANCE = Decimal("1e-6")
RELATIVE_TOLERANCE = 1e-5
ABSOLUTE_TOLERANCE = 1e-8
# Below this, an absolute tolerance would take any two numbers for the same.
SMALL = 1e-6
SMALL_TOLERANCE = 1e-3
MAX_UNPACKED_BYTES = 512 * 1024 * 1024
SHOWN_CHARS = 300
# Longer outputs are compared in a thread, because that takes a while.
LONG_CHARS = 50_000

# What solutions of programming contests take for granted; `builtins` last, so that `pow` is what it should be.
PRELUDE = "\n".join(
    [f"from {module} import *" for module in (
        "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
        "itertools", "functools", "operator", "io", "json", "typing", "builtins",
    )]
    + [f"import {module}" for module in (
        "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
        "itertools", "functools", "operator", "io", "sys", "json", "time", "typing",
    )]
    + ["sys.setrecursionlimit(50_000)", "sys.set_int_max_str_digits(1 << 20)"]
)  # fmt: skip
# Decimal also reads `1_0`, `NaN` and the digits of other scripts.
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,6})?")
_YES_OR_NO = ("yes", "no")


class UnitTests(BaseModel):
    """Inputs and the outputs they should lead to."""

    inputs: list[str] = Field(min_length=1)
    """What a program reads; or, with `fn_name`, the arguments of a function as JSON, one a line."""
    outputs: list[str]
    """What a program prints; or, with `fn_name`, what the function returns, as JSON."""
    packed: str | None = Field(None, exclude=True)
    """Inputs and outputs, compressed; they are unpacked when a row is read."""
    fn_name: str | None = None
    harness: str | None = None
    """Code that tests the program, run after it; `fn_name` is then a function of it."""
    entry_points: list[str] | None = None
    """With `harness`: the names that it takes from the program, all others being its own."""
    given: str = ""
    """With `harness`: code whose names the program may use without defining them."""

    @model_validator(mode="before")
    @classmethod
    def _unpack(cls, given: Any) -> Any:
        """Take inputs and outputs from `packed`: base64 of compressed JSON, as large test sets are stored."""
        if not isinstance(given, dict) or given.get("packed") is None:
            return given
        try:
            unpacker = zlib.decompressobj()
            text = unpacker.decompress(base64.b64decode(given["packed"]), MAX_UNPACKED_BYTES)
            if unpacker.unconsumed_tail:
                raise ValueError(f"they take more than {MAX_UNPACKED_BYTES} bytes")
            tests = json.loads(text)
            return {**given, "inputs": tests["inputs"], "outputs": tests["outputs"], "packed": None}
        except (ValueError, TypeError, KeyError, zlib.error) as error:
            raise ValueError(f"the packed unit tests cannot be read: {error!r}") from None

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


@dataclass(frozen=True)
class Report:
    """How the unit tests went."""

    result: list[bool | int]
    """True for each test that passed; at the end, for one that did not, false or the code of its error."""
    metadata: dict[str, Any]
    """Of a failure: its code and message, and the test it is about, cut short."""
    elapsed_s: float

    @property
    def has_passed(self) -> bool:
        """Whether all tests did."""
        return all(outcome is True for outcome in self.result)


async def check(
    pool: CodePool, code: str, tests: UnitTests, timeout_s: float, harness_process: HarnessProcess
) -> Report:
    """Run `code` against each test: as a program that reads and prints, or by calling a function.

    That is a function of the code, or of the harness that tests it. SandboxLost says nothing about the code.
    """
    harness = tests.make_harness(harness_process)
    result: list[bool | int] = []
    elapsed_s = 0.0
    for given, expected in zip(tests.inputs, tests.outputs, strict=True):
        if tests.fn_name is None:
            ran = await pool.run(code, stdin=given, prelude=PRELUDE, timeout_s=timeout_s)
        else:
            arguments = [json.loads(line) for line in given.split("\n")]
            ran = await pool.call(code, tests.fn_name, arguments, prelude=PRELUDE, harness=harness, timeout_s=timeout_s)
        elapsed_s += ran.elapsed_s
        outcome = await _judge(ran, expected, is_call=tests.fn_name is not None)
        result.append(False if outcome == WRONG_ANSWER else outcome)
        if outcome is not True:
            shown = ran.stdout if tests.fn_name is None else _to_json(ran.value)
            failure = {"error_code": outcome, "error_message": MESSAGES[outcome], "inputs": _cut(given)}
            failure |= {"expected": _cut(expected)}
            if outcome == WRONG_ANSWER:
                return Report(result, {**failure, "output": _cut(shown)}, elapsed_s)
            failure["error_message"] = f"{MESSAGES[outcome]}: {ran.error}"
            return Report(result, {**failure, "error": _cut(ran.stderr.strip())}, elapsed_s)
    return Report(result, {}, elapsed_s)


def extract_code(text: str) -> str | None:
    """Return what stands between the last two lines with three backticks; None if there are no two."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if "```" in line]
    return None if len(fences) < 2 else "\n".join(lines[fences[-2] + 1 : fences[-1]])


def is_same_output(printed: str, expected: str) -> bool:
    """Return whether two outputs have the same lines, apart from white space around them, the case of yes and no, and
    how numbers are written; those with a fraction need not be exact."""
    ours, theirs = ([line.strip() for line in text.strip().split("\n")] for text in (printed, expected))
    return len(ours) == len(theirs) and all(map(_is_same_line, ours, theirs))


def _is_same_line(line: str, expected: str) -> bool:
    if line == expected:
        return True
    if expected.lower() in _YES_OR_NO and line.lower() == expected.lower():
        return True
    ours = line.split()
    theirs = expected.split()
    return len(ours) == len(theirs) and all(map(_is_same_number, ours, theirs))


def _is_same_number(word: str, expected: str) -> bool:
    if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected)):
        return False
    number = Decimal(word)
    wanted = Decimal(expected)
    if number == wanted or not set(".eE") & {*word, *expected}:
        return number == wanted
    allowed = PRINTED_TOLERANCE * max(1, abs(wanted))
    if wanted and abs(wanted) < PRINTED_TOLERANCE:
        # A checker's absolute tolerance is meant for digits that were not printed.
        last_digit = Decimal((0, (1,), int(wanted.as_tuple().exponent)))
        return abs(number - wanted) < min(allowed, last_digit)
    return abs(number - wanted) <= allowed


def is_same_value(value: Any, expected: Any) -> bool:
    """Return whether two JSON values are equal; a float, or one in a list, need not be exact."""
    if value == expected or _is_close(value, expected):
        return True
    if not (isinstance(value, list) and isinstance(expected, list) and len(value) == len(expected)):
        return False
    return all(one == other or _is_close(one, other) for one, other in zip(value, expected, strict=True))


def _is_close(value: Any, expected: Any) -> bool:
    """Return whether two numbers, at least one of them a float, are equal up to rounding; one may be a text."""
    pair = (value, expected)
    if not any(isinstance(one, float) for one in pair):
        return False
    if not all(isinstance(one, int | float | str) and not isinstance(one, bool) for one in pair):
        return False
    if any(isinstance(one, str) and not _NUMBER.fullmatch(one.strip()) for one in pair):
        return False
    try:
        number, wanted = map(float, pair)
    except OverflowError:
        return False
    if number and wanted and abs(wanted) < SMALL:
        return abs(number - wanted) <= SMALL_TOLERANCE * abs(wanted)
    return math.isfinite(number) and abs(number - wanted) <= ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * abs(wanted)


async def _judge(ran: CodeResult, expected: str, *, is_call: bool) -> bool | int:
    if ran.status == "timeout":
        return TIME_LIMIT
    # A program may end itself with any code; a function that does so has returned nothing.
    if ran.status != "ok" and (is_call or not (ran.status == "error" and ran.exited)):
        return RUNTIME_ERROR
    if len(ran.stdout) + len(expected) > LONG_CHARS:
        return await asyncio.to_thread(_is_right, ran, expected, is_call) or WRONG_ANSWER
    return _is_right(ran, expected, is_call) or WRONG_ANSWER


def _is_right(ran: CodeResult, expected: str, is_call: bool) -> bool:
    return is_same_value(ran.value, json.loads(expected)) if is_call else is_same_output(ran.stdout, expected)


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "a value too deep to show"


def _cut(text: str) -> str:
    if len(text) <= SHOWN_CHARS:
        return text
    half = SHOWN_CHARS // 2
    return f"{text[:half]} …({len(text) - SHOWN_CHARS} characters)… {text[-half:]}"
