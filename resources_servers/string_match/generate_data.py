# SPDX-License-Identifier: Apache-2.0
"""Write the tasks of this environment: always the same ones.

Words are drawn from a small pool and changed in a way that has one result. `solution` is what a model says that can do
it.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
ROWS = 40
WORDS = ("amber", "bridge", "cloud", "delta", "ember", "frost", "grove", "harbor", "iris", "jade", "kite", "lantern")

CHANGES: dict[str, Callable[[list[str]], str]] = {
    "in alphabetical order, separated by spaces": lambda words: " ".join(sorted(words)),
    "in reverse order, separated by spaces": lambda words: " ".join(reversed(words)),
    "as one word made of their first letters": lambda words: "".join(word[0] for word in words),
}
FORMS = {
    "boxed": ("Put the result into \\boxed{}.", "It is \\boxed{%s}."),
    "final_answer": ("End with a line `Final answer: <result>`.", "Let me see.\nFinal answer: %s"),
    "last_line": ("Write the result alone on the last line.", "Let me see.\n%s"),
    "full_response": ("Reply with the result and nothing else.", "%s"),
}


def all_rows() -> list[dict[str, Any]]:
    """Return all tasks; the forms of the answer take turns."""
    draw = random.Random(SEED)
    return [_row(draw, list(FORMS)[number % len(FORMS)]) for number in range(ROWS)]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: the first few of all."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that answers `row`."""
    return [FORMS[row["extraction_mode"]][1] % row["expected_answer"]]


def _row(draw: random.Random, mode: str) -> dict[str, Any]:
    words = draw.sample(WORDS, draw.randint(3, 5))
    how, change = draw.choice(sorted(CHANGES.items(), key=lambda item: item[0]))
    asked = f"Write these words {how}: {', '.join(words)}. {FORMS[mode][0]}"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": asked}]},
        "expected_answer": change(words),
        "extraction_mode": mode,
        "case_sensitive": False,
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and all rows to `train.jsonl` beside it."""
    for file, lines in ((path, rows()), (path.with_name("train.jsonl"), all_rows())):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
