# SPDX-License-Identifier: Apache-2.0
"""Write the example rows of this environment: always the same ones.

A row is a question about the weather of a city. `solution` is what a sensible model does with a row.
"""

import json
import random
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROWS = 5
SEED = 0

CITIES = ("San Francisco", "Nairobi", "Reykjavik", "Osaka", "Lima", "Tromsø", "Wellington", "Casablanca")
QUESTIONS = (
    "What's the weather like in {city}?",
    "I am going out in {city} tonight. What should I wear?",
    "Do I need a coat in {city}?",
    "Is it warm enough for a picnic in {city}?",
    "My sister lands in {city} in an hour. What weather should she expect?",
)
INSTRUCTIONS = "You are a helpful assistant. Use the tool to find out about the weather instead of guessing."
GET_WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The name of the city."}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    draw = random.Random(SEED)
    return [
        _row(question.format(city=city))
        for question, city in zip(draw.sample(QUESTIONS, ROWS), draw.sample(CITIES, ROWS), strict=True)
    ]


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]] | str]:
    """Return the turns of a model that solves `row`: a tool call, then what it says in the end."""
    question = row["responses_create_params"]["input"][-1]["content"]
    city = next(city for city in CITIES if city in question)
    return [("get_weather", {"city": city}), f"It is cold in {city}: a warm coat is a good idea."]


def _row(question: str) -> dict[str, Any]:
    return {
        "responses_create_params": {
            "input": [{"role": "developer", "content": INSTRUCTIONS}, {"role": "user", "content": question}],
            "tools": [GET_WEATHER],
        }
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    write()
