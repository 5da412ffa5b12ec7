# SPDX-License-Identifier: Apache-2.0
"""Write the questions of this environment: always the same ones, with tools of our own.

A question asks for one to three things, each of which is a call. Rows offer more tools than are needed. `solution` is
what a model does that knows the calls.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
TRAIN_ROWS = 75

CITIES = ("Oslo", "Lima", "Nairobi", "Quito", "Hanoi", "Porto")
CURRENCIES = ("EUR", "NOK", "JPY", "KES", "CAD")
ROOMS = ("kitchen", "hall", "attic", "cellar")
Drawn = tuple[str, dict[str, Any]]


def _weather(draw: random.Random) -> Drawn:
    city = draw.choice(CITIES)
    days = draw.randint(2, 7)
    return f"the forecast of the next {days} days for {city}", {"city": city, "days": days}


def _exchange(draw: random.Random) -> Drawn:
    source, target = draw.sample(CURRENCIES, 2)
    amount = draw.randint(1, 40) * 25
    asked = f"how much {amount} {source} are in {target}"
    return asked, {"amount": amount, "source": source, "target": target}


def _distance(draw: random.Random) -> Drawn:
    start, end = draw.sample(CITIES, 2)
    return f"the distance from {start} to {end} in kilometres", {"start": start, "end": end, "unit": "km"}


def _light(draw: random.Random) -> Drawn:
    room = draw.choice(ROOMS)
    percent = draw.randint(1, 9) * 10
    return f"the light in the {room} set to {percent} percent", {"room": room, "percent": percent}


def _timer(draw: random.Random) -> Drawn:
    minutes = draw.randint(1, 90)
    label = draw.choice(("tea", "bread", "laundry"))
    return f"a timer of {minutes} minutes called {label}", {"minutes": minutes, "label": label}


def _tool(name: str, description: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
        "strict": True,
    }


_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}
_NUMBER = {"type": "number"}
KINDS: dict[str, tuple[Callable[[random.Random], Drawn], dict[str, Any]]] = {
    "get_forecast": (
        _weather,
        _tool("get_forecast", "The weather of the next days in a city.", city=_TEXT, days=_WHOLE),
    ),
    "convert_currency": (
        _exchange,
        _tool("convert_currency", "An amount in another currency.", amount=_NUMBER, source=_TEXT, target=_TEXT),
    ),
    "get_distance": (
        _distance,
        _tool(
            "get_distance",
            "The distance between two cities.",
            start=_TEXT,
            end=_TEXT,
            unit={"type": "string", "enum": ["km", "miles"]},
        ),
    ),
    "set_light": (_light, _tool("set_light", "Dim the light of a room.", room=_TEXT, percent=_WHOLE)),
    "start_timer": (_timer, _tool("start_timer", "Start a timer.", minutes=_WHOLE, label=_TEXT)),
}


def all_rows() -> list[dict[str, Any]]:
    """Return all questions."""
    draw = random.Random(SEED)
    return [_row(draw, number) for number in range(EXAMPLE_ROWS + TRAIN_ROWS)]


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[Any]:
    """Return the turns of a model that solves `row`: its calls, one after the other."""
    return [(call["name"], call["arguments"]) for call in row["expected_answers"]]


def _row(draw: random.Random, number: int) -> dict[str, Any]:
    offered = draw.sample(sorted(KINDS), 4)
    names = draw.choices(offered, k=1 + number % 3)
    drawn = [KINDS[name][0](draw) for name in names]
    asked = "I need these: " + "; ".join(text for text, _ in drawn) + "."
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": asked}],
            "tools": [KINDS[name][1] for name in offered],
        },
        "expected_answers": [
            {"name": name, "arguments": arguments} for name, (_, arguments) in zip(names, drawn, strict=True)
        ],
        "id": number,
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and the others to `train.jsonl` beside it."""
    every = all_rows()
    for file, lines in ((path, every[:EXAMPLE_ROWS]), (path.with_name("train.jsonl"), every[EXAMPLE_ROWS:])):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
