# SPDX-License-Identifier: Apache-2.0
"""Write the example rows of this environment: always the same ones. `solution` is the one call that a row expects."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TOOLS = [
    {
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
    for name, description, properties in (
        (
            "book_table",
            "Book a table in a restaurant.",
            {"restaurant": {"type": "string"}, "guests": {"type": "integer"}, "hour": {"type": "integer"}},
        ),
        (
            "send_parcel",
            "Send a parcel.",
            {"to": {"type": "string"}, "speed": {"type": "string", "enum": ["slow", "fast"]}},
        ),
    )
]
TASKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Book a table for 4 at Vela at 19 o'clock.", "book_table", {"restaurant": "Vela", "guests": 4, "hour": 19}),
    ("Send a fast parcel to Ines.", "send_parcel", {"to": "Ines", "speed": "fast"}),
    (
        "We are 2 and eat at Brisa at 20 o'clock. Book it.",
        "book_table",
        {"restaurant": "Brisa", "guests": 2, "hour": 20},
    ),
    ("There is no hurry: send a parcel to Tomas, slow.", "send_parcel", {"to": "Tomas", "speed": "slow"}),
    (
        "A table at Onda, please, for 7 people at 18 o'clock.",
        "book_table",
        {"restaurant": "Onda", "guests": 7, "hour": 18},
    ),
)


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return [
        {
            "responses_create_params": {"input": [{"role": "user", "content": asked}], "tools": TOOLS},
            "expected_call": {"name": name, "arguments": arguments},
        }
        for asked, name, arguments in TASKS
    ]


def solution(row: dict[str, Any]) -> list[Any]:
    """Return the turns of a model that solves `row`."""
    return [(row["expected_call"]["name"], row["expected_call"]["arguments"])]


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    write()
