# SPDX-License-Identifier: Apache-2.0
"""Write the questions of this environment: always the same ones.

Facts are from small tables below; the wrong options of a question are the right answers of others. `solution` is what
a model says that knows the answer.
"""

import json
import random
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
LETTERS = "ABCD"

FACTS = {
    "What is the chemical symbol of {}?": {
        "gold": "Au",
        "silver": "Ag",
        "iron": "Fe",
        "lead": "Pb",
        "tin": "Sn",
        "potassium": "K",
        "sodium": "Na",
        "tungsten": "W",
    },
    "Which planet is number {} from the sun?": {
        "1": "Mercury",
        "2": "Venus",
        "3": "Earth",
        "4": "Mars",
        "5": "Jupiter",
        "6": "Saturn",
        "7": "Uranus",
        "8": "Neptune",
    },
    "How many sides has a regular {}?": {
        "triangle": "3",
        "square": "4",
        "pentagon": "5",
        "hexagon": "6",
        "heptagon": "7",
        "octagon": "8",
    },
    "On which continent is {}?": {
        "Kenya": "Africa",
        "Nepal": "Asia",
        "Portugal": "Europe",
        "Chile": "South America",
        "Canada": "North America",
    },
}


def all_rows() -> list[dict[str, Any]]:
    """Return one question for every fact, in random order."""
    draw = random.Random(SEED)
    made = [_row(draw, question, facts, thing) for question, facts in FACTS.items() for thing in facts]
    draw.shuffle(made)
    return [{**row, "uuid": f"mcqa-{number:03}"} for number, row in enumerate(made)]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: the first few of all."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that answers `row`."""
    return [f"The answer is \\boxed{{{row['expected_answer']}}}."]


def _row(draw: random.Random, question: str, facts: dict[str, str], thing: str) -> dict[str, Any]:
    right = facts[thing]
    wrong = draw.sample(sorted(set(facts.values()) - {right}), len(LETTERS) - 1)
    texts = draw.sample([right, *wrong], len(LETTERS))
    options = dict(zip(LETTERS, texts, strict=True))
    listed = "\n".join(f"{letter}: {text}" for letter, text in options.items())
    asked = (
        f"{question.format(thing)}\n\n{listed}\n\nEnd your reply with the letter of the right option in \\boxed{{}}."
    )
    return {
        "responses_create_params": {"input": [{"role": "user", "content": asked}]},
        "options": [{letter: text} for letter, text in options.items()],
        "expected_answer": next(letter for letter, text in options.items() if text == right),
        "grading_mode": "strict_single_letter_boxed",
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and all rows to `train.jsonl` beside it."""
    for file, lines in ((path, rows()), (path.with_name("train.jsonl"), all_rows())):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
