# SPDX-License-Identifier: Apache-2.0
"""Write the questions of this environment: always the same ones, with answers in words.

Some ask for the answer in a form of its own, which the row's pattern finds. `solution` is what a model says that knows
the answer.
"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXAMPLE_ROWS = 5
PATTERN = r"Final answer:\s*(.+)"

FACTS = {
    "Why is the sky blue at noon?": "Air scatters blue light more than red light.",
    "What does a catalyst do?": "It speeds up a reaction without being used up.",
    "Why does ice float on water?": "Ice is less dense than liquid water.",
    "What is the difference between weather and climate?": "Weather is the state of the air now, climate its average.",
    "Who wrote down the laws of planetary motion that bear his name?": "Johannes Kepler",
    "What keeps the moon in its orbit?": "The gravity of the Earth.",
    "What do plants take from the air to make sugar?": "Carbon dioxide",
    "Why do we have leap years?": "A year is about a quarter of a day longer than 365 days.",
    "What happens to the volume of a gas when it is heated at constant pressure?": "It increases.",
    "What does a prime number have exactly two of?": "Divisors: one and itself.",
    "Why does metal feel colder than wood at the same temperature?": "Metal conducts heat away from the hand faster.",
    "What is the largest organ of the human body?": "The skin",
    "What makes the tides?": "The pull of the moon and, less so, of the sun.",
    "In which direction does a compass needle point?": "To the magnetic north.",
    "What is sound?": "Vibrations that travel through a medium such as air.",
    "Why do astronauts float in a space station?": "They fall around the Earth together with the station.",
    "What is the opposite operation of differentiation?": "Integration",
    "Which gas do living things need to burn sugar?": "Oxygen",
    "What is an isotope?": "A form of an element with another number of neutrons.",
    "Why are there seasons?": "The axis of the Earth is tilted against its orbit.",
}


def all_rows() -> list[dict[str, Any]]:
    """Return one row for every fact; every other one with a pattern."""
    return [_row(number, *fact) for number, fact in enumerate(FACTS.items())]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: the first few of all."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that answers `row`."""
    return [f"Let me see.\nFinal answer: {row['expected_answer']}"]


def _row(number: int, question: str, answer: str) -> dict[str, Any]:
    has_pattern = number % 2 == 1
    form = " End your reply with a line `Final answer: …`." if has_pattern else " Answer in one sentence."
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"{question}{form}"}]},
        "question": question,
        "expected_answer": answer,
        "uuid": f"equivalence-{number:03}",
        "template_metadata": {"output_regex": PATTERN} if has_pattern else None,
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and all rows to `train.jsonl` beside it."""
    for file, lines in ((path, rows()), (path.with_name("train.jsonl"), all_rows())):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
