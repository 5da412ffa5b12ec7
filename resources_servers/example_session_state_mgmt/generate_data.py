# SPDX-License-Identifier: Apache-2.0
"""Write the example rows of this environment: always the same ones.

A row asks to change a counter, which begins at some count, by several amounts. `solution` is what a model that makes no
mistake does with a row.
"""

import json
import random
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROWS = 5
SEED = 0
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
COUNT = {
    "type": "object",
    "properties": {"count": {"type": "integer", "description": "How much to add."}},
    "required": ["count"],
    "additionalProperties": False,
}


def rows() -> list[dict[str, Any]]:
    """Return the example rows; the later, the more there is to add."""
    draw = random.Random(SEED)
    return [_row(draw.randint(0, 20), [draw.randint(1, 9) for _ in range(1 + number)]) for number in range(ROWS)]


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]] | str]:
    """Return the turns of a model that solves `row`: tool calls, then what it says in the end."""
    asked = row["responses_create_params"]["input"][-1]["content"]
    added = [("increment_counter", {"count": int(amount)}) for amount in re.findall(r"\d+", asked)]
    return [*added, ("get_counter_value", {}), f"The counter now shows {row['expected_count']}."]


def _row(initial_count: int, amounts: list[int]) -> dict[str, Any]:
    listed = ", then by ".join(map(str, amounts))
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": f"Increment the counter by {listed}. What does it show in the end?"}],
            "tools": [
                _tool("increment_counter", "Add to the counter.", COUNT),
                _tool("get_counter_value", "Get what the counter shows.", NO_ARGUMENTS),
            ],
        },
        "initial_count": initial_count,
        "expected_count": initial_count + sum(amounts),
    }


def _tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": True}


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    write()
