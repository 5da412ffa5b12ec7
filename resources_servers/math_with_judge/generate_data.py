# SPDX-License-Identifier: Apache-2.0
"""Write the questions of this environment: always the same ones.

Their answers are whole numbers, fractions, roots, polynomials, sets, intervals and pairs, to give every kind of
comparison work. Kinds take turns, so that the first few rows are a fair sample of all. `solution` is what a model says
that knows the answer.
"""

import json
import math
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
ROUNDS = 30
TRAIN_ROUNDS = 24

Task = tuple[str, str]
"""A question and its answer."""


def linear(draw: random.Random) -> Task:
    factor = draw.randint(2, 19)
    root = draw.randint(-20, 20)
    shift = draw.randint(1, 60)
    return f"Solve for $x$: ${factor}x + {shift} = {factor * root + shift}$.", str(root)


def fractions(draw: random.Random) -> Task:
    first = Fraction(draw.randint(1, 15), draw.randint(2, 16))
    second = Fraction(draw.randint(1, 15), draw.randint(2, 16))
    return f"What is ${_fraction(first)} + {_fraction(second)}$ as a fraction in lowest terms?", _fraction(
        first + second
    )


def expanded(draw: random.Random) -> Task:
    first = draw.randint(1, 12)
    second = draw.randint(1, 12)
    return f"Expand $(x + {first})(x - {second})$.", f"x^2{_term(first - second, 'x')} - {first * second}"


def roots(draw: random.Random) -> Task:
    first, second = draw.sample(range(-12, 13), 2)
    asked = f"x^2{_term(-(first + second), 'x')}{_term(first * second)}"
    low, high = sorted((first, second))
    return f"Give the set of all real solutions of ${asked} = 0$.", rf"\{{{low}, {high}\}}"


def hypotenuse(draw: random.Random) -> Task:
    short = draw.randint(1, 15)
    long = draw.randint(16, 30)
    square = short**2 + long**2
    outside = max(n for n in range(1, math.isqrt(square) + 1) if square % n**2 == 0)
    inside = square // outside**2
    answer = str(outside) if inside == 1 else rf"{outside if outside > 1 else ''}\sqrt{{{inside}}}"
    return f"The legs of a right triangle are {short} and {long}. How long is its hypotenuse, exactly?", answer


def interval(draw: random.Random) -> Task:
    middle = draw.randint(-10, 10)
    width = draw.randint(1, 12)
    return (
        f"For which real $x$ is $|x{_term(-middle)}| < {width}$? Answer with an interval.",
        f"({middle - width}, {middle + width})",
    )


def chance(draw: random.Random) -> Task:
    red = draw.randint(2, 9)
    blue = draw.randint(2, 9)
    both = Fraction(red * (red - 1), (red + blue) * (red + blue - 1))
    question = (
        f"A bag holds {red} red and {blue} blue balls. Two are drawn without putting the first one back. "
        "What is the probability that both are red?"
    )
    return question, _fraction(both)


KINDS: tuple[Callable[[random.Random], Task], ...] = (linear, fractions, expanded, roots, hypotenuse, interval, chance)


def all_rows() -> list[dict[str, Any]]:
    """Return a row of every kind, and again, each of them asked once."""
    draw = random.Random(SEED)
    tasks = dict(kind(draw) for _ in range(ROUNDS) for kind in KINDS)
    return [_row(question, answer) for question, answer in tasks.items()]


def train_rows() -> list[dict[str, Any]]:
    """Return the first of all rows."""
    return all_rows()[: TRAIN_ROUNDS * len(KINDS)]


def validation_rows() -> list[dict[str, Any]]:
    """Return the rest of all rows."""
    return all_rows()[TRAIN_ROUNDS * len(KINDS) :]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: the first few of all."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that answers `row`."""
    return [f"The answer is $\\boxed{{{row['expected_answer']}}}$."]


def _row(question: str, answer: str) -> dict[str, Any]:
    asked = f"{question}\n\nReason step by step, and put your final answer in \\boxed{{}}."
    return {
        "responses_create_params": {"input": [{"role": "user", "content": asked}]},
        "question": question,
        "expected_answer": answer,
    }


def _term(value: int, symbol: str = "") -> str:
    """Return a term of a sum, with its sign; nothing if it is zero."""
    if value == 0:
        return ""
    size = "" if symbol and abs(value) == 1 else str(abs(value))
    return f" {'-' if value < 0 else '+'} {size}{symbol}"


def _fraction(value: Fraction) -> str:
    whole = value.denominator == 1
    return str(value.numerator) if whole else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and the others to `train.jsonl` and `validation.jsonl` beside it."""
    files = {path.name: rows(), "train.jsonl": train_rows(), "validation.jsonl": validation_rows()}
    for name, lines in files.items():
        path.with_name(name).write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
