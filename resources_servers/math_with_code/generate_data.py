# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment: always the same ones.

Every row asks for a number that is tedious by hand and short as a program. Kinds take turns, so that the first few rows
are a fair sample of all. `solution` is what a model does that writes that program and reads what it prints.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
ROUNDS = 10

INSTRUCTIONS = (
    "You can run Python with the tool execute_python; variables are kept from call to call. "
    "Give the final answer in \\boxed{}."
)
TOOL = {
    "type": "function",
    "name": "execute_python",
    "description": "Run Python code and get what it prints and the value of its last line. Variables are kept.",
    "parameters": {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The code to run."}},
        "required": ["code"],
        "additionalProperties": False,
    },
    "strict": True,
}

Task = tuple[str, list[str]]
"""A question, and pieces of code, of which the last gives the answer as the value of its last line."""


def primes(draw: random.Random) -> Task:
    low = draw.randint(1000, 9000)
    high = low + draw.randint(200, 900)
    return f"How many prime numbers are there from {low} to {high}?", [
        "def is_prime(n):\n    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))",
        f"sum(map(is_prime, range({low}, {high + 1})))",
    ]


def digit_sum(draw: random.Random) -> Task:
    base = draw.randint(2, 19)
    exponent = draw.randint(100, 400)
    return f"What is the sum of the decimal digits of {base}^{exponent}?", [
        f"number = {base}**{exponent}",
        "sum(map(int, str(number)))",
    ]


def collatz(draw: random.Random) -> Task:
    start = draw.randint(1000, 99_999)
    question = (
        f"Start with {start}. Halve the number if it is even; else multiply it by 3 and add 1. Repeat this. "
        "After how many steps is the number 1 for the first time?"
    )
    loop = "while n != 1:\n    n = n // 2 if n % 2 == 0 else 3 * n + 1\n    steps += 1"
    return question, [f"n, steps = {start}, 0\n{loop}", "steps"]


def fibonacci(draw: random.Random) -> Task:
    index = draw.randint(200, 2000)
    modulus = draw.randint(1000, 99_999)
    question = (
        f"Let F(1) = F(2) = 1 and F(n) = F(n-1) + F(n-2). What is the remainder of F({index}) divided by {modulus}?"
    )
    return question, [f"a, b = 0, 1\nfor _ in range({index}):\n    a, b = b, (a + b) % {modulus}", "a"]


def harmonic(draw: random.Random) -> Task:
    count = draw.randint(6, 30)
    step = draw.randint(2, 9)
    question = (
        f"What is the sum of 1/k for k = 1, {1 + step}, {1 + 2 * step}, … ({count} terms) as a reduced fraction a/b?"
    )
    return question, [
        f"from fractions import Fraction\ntotal = sum(Fraction(1, 1 + {step} * k) for k in range({count}))",
        "f'{total.numerator}/{total.denominator}'",
    ]


KINDS: tuple[Callable[[random.Random], Task], ...] = (primes, digit_sum, collatz, fibonacci, harmonic)


def all_rows() -> list[dict[str, Any]]:
    """Return all rows, the kinds taking turns."""
    return [_row(question, _answer(code)) for question, code in _tasks()]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: one of every kind."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, str]] | str]:
    """Return the turns of a model that solves `row`."""
    asked = row["responses_create_params"]["input"][-1]["content"]
    code = dict(_tasks())[asked]
    return [*(("execute_python", {"code": piece}) for piece in code), f"It is \\boxed{{{row['expected_result']}}}."]


def _tasks() -> Iterator[Task]:
    draw = random.Random(SEED)
    return (kind(draw) for _ in range(ROUNDS) for kind in KINDS)


def _answer(code: list[str]) -> str:
    names: dict[str, Any] = {}
    for piece in code[:-1]:
        exec(piece, names)
    return str(eval(code[-1], names))


def _row(question: str, answer: str) -> dict[str, Any]:
    turns = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
    return {
        "responses_create_params": {"input": turns, "tools": [TOOL], "parallel_tool_calls": False},
        "expected_result": answer,
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and all rows to `train.jsonl` beside it."""
    for file, lines in ((path, rows()), (path.with_name("train.jsonl"), all_rows())):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
