# SPDX-License-Identifier: Apache-2.0
"""Run a program against its unit tests, one by one until the first that fails, and say how each of them went.

The program runs in a sandbox and never sees what is expected of it: answers are compared here, or by a harness.
"""

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from nemo_gym.code_execution import CodePool, CodeResult, Harness

WRONG_ANSWER, TIME_LIMIT, RUNTIME_ERROR = -2, -3, -4
MESSAGES = {
    WRONG_ANSWER: "Wrong Answer",
    TIME_LIMIT: "Time Limit Exceeded",
    RUNTIME_ERROR: "Runtime Error",
}
FLOAT_TOLERANCE = 1e-6
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
    + ["sys.setrecursionlimit(50_000)"]
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """How the unit tests went."""

    result: list[bool | int]
    """True for each test that passed; at the end, for one that did not, the code of its failure."""
    metadata: dict[str, Any]
    """Of a failure: its code and message, and the test it is about, cut short."""
    elapsed_s: float

    @property
    def has_passed(self) -> bool:
        """Whether all tests did."""
        return all(outcome is True for outcome in self.result)


async def check(
    pool: CodePool,
    code: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    fn_name: str | None,
    timeout_s: float,
    harness: Harness | None = None,
) -> Report:
    """Run `code` against each test: as a program that reads and prints, or by calling the function `fn_name`.

    That is a function of the code, or of the harness that tests it. SandboxLost says nothing about the code.
    """
    result: list[bool | int] = []
    elapsed_s = 0.0
    for given, expected in zip(inputs, outputs, strict=True):
        if fn_name is None:
            ran = await pool.run(code, stdin=given, prelude=PRELUDE, timeout_s=timeout_s)
        else:
            arguments = [json.loads(line) for line in given.split("\n")]
            ran = await pool.call(code, fn_name, arguments, prelude=PRELUDE, harness=harness, timeout_s=timeout_s)
        elapsed_s += ran.elapsed_s
        outcome = await _outcome(ran, expected, is_call=fn_name is not None)
        result.append(outcome)
        if outcome is not True:
            shown = ran.stdout if fn_name is None else _as_json(ran.value)
            details = {"output": _cut(shown)} if outcome == WRONG_ANSWER else {"error": _cut(ran.stderr.strip())}
            said = MESSAGES[outcome] if outcome == WRONG_ANSWER else f"{MESSAGES[outcome]}: {ran.error}"
            return Report(result, {**_failure(outcome, given, expected), "error_message": said, **details}, elapsed_s)
    return Report(result, {}, elapsed_s)


def extract_code(text: str) -> str | None:
    """What stands between the last two lines with three backticks; None if there are no two."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if "```" in line]
    return None if len(fences) < 2 else "\n".join(lines[fences[-2] + 1 : fences[-1]])


def same_output(printed: str, expected: str) -> bool:
    """Whether two outputs are equal line by line, without white space around the lines; equal numbers are equal."""
    ours, theirs = ([line.strip() for line in text.strip().split("\n")] for text in (printed, expected))
    return len(ours) == len(theirs) and all(a == b or _same_numbers(a, b) for a, b in zip(ours, theirs, strict=True))


def same_value(value: Any, expected: Any) -> bool:
    """Whether two JSON values are equal, floats within a tolerance."""
    pairs = [(value, expected)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            pairs += zip(one, other, strict=True)
        elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            pairs += ((one[key], other[key]) for key in one)
        elif not _same_scalar(one, other):
            return False
    return True


async def _outcome(ran: CodeResult, expected: str, *, is_call: bool) -> bool | int:
    if ran.status == "timeout":
        return TIME_LIMIT
    if ran.status != "ok":
        return RUNTIME_ERROR
    if len(ran.stdout) + len(expected) > LONG_CHARS:
        return await asyncio.to_thread(_is_right, ran, expected, is_call) or WRONG_ANSWER
    return _is_right(ran, expected, is_call) or WRONG_ANSWER


def _is_right(ran: CodeResult, expected: str, is_call: bool) -> bool:
    return same_value(ran.value, json.loads(expected)) if is_call else same_output(ran.stdout, expected)


def _same_numbers(line: str, expected: str) -> bool:
    try:
        ours, theirs = ([Decimal(word) for word in text.split()] for text in (line, expected))
        return ours == theirs
    except InvalidOperation:
        return False


def _same_scalar(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        try:
            return math.isclose(one, other, rel_tol=FLOAT_TOLERANCE, abs_tol=FLOAT_TOLERANCE)
        except (TypeError, OverflowError):
            return False
    return bool(one == other)


def _failure(code: int, given: str, expected: str) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": MESSAGES[code],
        "inputs": _cut(given),
        "expected": _cut(expected),
    }


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "a value too deep to show"


def _cut(text: str) -> str:
    if len(text) <= SHOWN_CHARS:
        return text
    half = SHOWN_CHARS // 2
    return f"{text[:half]} …({len(text) - SHOWN_CHARS} characters)… {text[-half:]}"
