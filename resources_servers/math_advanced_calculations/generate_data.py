# SPDX-License-Identifier: Apache-2.0
"""Write the tasks of this environment: always the same ones.

A task names one to three calculations in words, each of some steps. `solution` is what a model does that calls a tool
for every step.
"""

import json
import random
from pathlib import Path
from typing import Any

from resources_servers.math_advanced_calculations.calculators import CALCULATORS, CalculationError, calculate

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
TRAIN_ROWS = 60
LARGEST = 1e6

Term = float | tuple[str, tuple["Term", ...]]

SYSTEM = (
    "You calculate with tools. In this world they follow laws of their own, so no result can be known without calling "
    "them: make every step with its tool, and use the results as they are. At the end, give all results that were "
    "asked for, with at least six significant digits."
)
NAMES = {
    "add": ("a", "b"),
    "cos": ("radians",),
    "divide": ("a", "b"),
    "log": ("a", "base"),
    "multiply": ("a", "b"),
    "negate": ("a",),
    "pi": (),
    "power": ("a", "b"),
    "return_constant": ("a",),
    "sin": ("radians",),
    "subtract": ("a", "b"),
}
WORDS = {
    "add": "{} plus {}",
    "cos": "the cosine of {}",
    "divide": "{} divided by {}",
    "log": "the logarithm of {} to the base {}",
    "multiply": "{} times {}",
    "negate": "the negative of {}",
    "pi": "pi",
    "power": "{} to the power of {}",
    "return_constant": "the constant {}",
    "sin": "the sine of {}",
    "subtract": "{} minus {}",
}


def tools() -> list[dict[str, Any]]:
    """Return the tools as rows offer them."""
    return [
        {
            "type": "function",
            "name": name,
            "description": CALCULATORS[name].__doc__,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "number"} for key in keys},
                "required": list(keys),
                "additionalProperties": False,
            },
            "strict": True,
        }
        for name, keys in NAMES.items()
    ]


def all_rows() -> list[dict[str, Any]]:
    """Return all tasks, easy ones first."""
    draw = random.Random(SEED)
    return [_row(draw, number) for number in range(EXAMPLE_ROWS + TRAIN_ROWS)]


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[Any]:
    """Return the turns of a model that solves `row`: a call for every step, then the results."""
    calls: list[tuple[str, dict[str, float]]] = []
    results = [_play_term(_read_term(json.loads(text)), calls) for text in row["steps"]]
    return [*calls, "The results are " + " and ".join(f"{value!r}" for value in results) + "."]


def _row(draw: random.Random, number: int) -> dict[str, Any]:
    terms = [_draw_term(draw, depth=2 + number % 3) for _ in range(1 + number % 2)]
    asked = " and ".join(_word_term(term) for term in terms)
    content = f"What is {asked}?" if len(terms) == 1 else f"What are these: {asked}?"
    return {
        "responses_create_params": {
            "input": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}],
            "tools": tools(),
        },
        "ground_truth": [_play_term(term, []) for term in terms],
        "id": number,
        "steps": [json.dumps(term) for term in terms],
    }


def _draw_term(draw: random.Random, depth: int) -> Term:
    """Return a term of at least `depth` steps whose result is neither too large, nor close to zero, nor whole.

    A whole number could be one of those that the term is made of.
    """
    while True:
        term = _any_term(draw, depth)
        calls = list[tuple[str, dict[str, float]]]()
        try:
            result = _play_term(term, calls)
        except CalculationError:
            continue
        if len(calls) >= depth and 1e-3 < abs(result) < LARGEST and result != round(result):
            return term


def _any_term(draw: random.Random, depth: int) -> Term:
    if depth == 0:
        return float(draw.randint(1, 12))
    name = draw.choice(sorted(NAMES))
    if name == "power":
        return (name, (_any_term(draw, depth - 1), float(draw.randint(1, 3))))
    return (name, tuple(_any_term(draw, draw.randint(0, depth - 1)) for _ in NAMES[name]))


def _play_term(term: Term, calls: list[tuple[str, dict[str, float]]]) -> float:
    """Return the value of a term; the calls that lead to it are appended."""
    if isinstance(term, float):
        return term
    name, below = term
    arguments = dict(zip(NAMES[name], [_play_term(one, calls) for one in below], strict=True))
    calls.append((name, arguments))
    return calculate(name, arguments)


def _word_term(term: Term) -> str:
    if isinstance(term, float):
        return f"{term:g}"
    name, below = term
    return WORDS[name].format(*(f"({_word_term(one)})" if isinstance(one, tuple) else _word_term(one) for one in below))


def _read_term(value: Any) -> Term:
    return float(value) if not isinstance(value, list) else (value[0], tuple(map(_read_term, value[1])))


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and the others to `train.jsonl` beside it."""
    every = all_rows()
    for file, lines in ((path, every[:EXAMPLE_ROWS]), (path.with_name("train.jsonl"), every[EXAMPLE_ROWS:])):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
