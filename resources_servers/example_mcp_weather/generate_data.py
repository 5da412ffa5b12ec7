# SPDX-License-Identifier: Apache-2.0
"""Write the example rows of this environment: always the same ones.

A row is a question about the weather of a city. `solution` is what a sensible model does with a row.
"""

import json
import random
from pathlib import Path
from typing import Any

from resources_servers.example_mcp_weather.app import describe_weather
from resources_servers.example_single_tool_call.generate_data import GET_WEATHER

HERE = Path(__file__).parent
ROWS = 5
SEED = 2

CITIES = ("Casablanca", "Lima", "Nairobi", "Osaka", "Reykjavik", "Tromsø", "Wellington")
QUESTIONS = (
    "What is the weather like in {city} right now?",
    "I am about to leave my hotel in {city}. What is it like outside?",
    "How is the weather in {city}, and how warm is it?",
    "Tell me the current weather in {city}.",
    "What weather awaits my guests in {city}?",
)
INSTRUCTIONS = (
    "Ask the tool for the weather instead of guessing. Then repeat the sentence that it gives, word for word."
)


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    draw = random.Random(SEED)
    cities = draw.sample(CITIES, ROWS)
    return [_row(question.format(city=city), city) for question, city in zip(QUESTIONS, cities, strict=True)]


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]] | str]:
    """Return the turns of a model that solves `row`: a tool call, then what it says in the end."""
    city = row["verifier_metadata"]["expected_city"]
    return [("get_weather", {"city": city}), f"I have asked. {describe_weather(city)}"]


def _row(question: str, city: str) -> dict[str, Any]:
    return {
        "responses_create_params": {
            "input": [{"role": "developer", "content": INSTRUCTIONS}, {"role": "user", "content": question}],
            "tools": [GET_WEATHER],
        },
        "verifier_metadata": {"expected_city": city},
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    write()
