# SPDX-License-Identifier: Apache-2.0
"""Write the tasks of this environment: always the same ones.

The toolkits take turns, and no task comes twice, within a set or in two of them. Train and validation sets are large,
as every row offers all tools, so they are written on demand: `python generate_data.py train validation`.
"""

import json
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from resources_servers.workplace_assistant.company import Draw
from resources_servers.workplace_assistant.offices import HARBORLIGHT
from resources_servers.workplace_assistant.tasks import TASKS, Script, Unclear
from resources_servers.workplace_assistant.toolkits import TOOLS

HERE = Path(__file__).parent
SEED = 0
SIZES = {"example": 5, "validation": 100, "train": 1000}
"""How many rows each set has; the sets are consecutive parts of one sequence."""
NAME = "workplace_assistant"
DRAWS_OF_A_KIND = 20

SYSTEM = (
    "You are an assistant in an office and work with the tools you are given. Today is Thursday, 2023-11-30, and it is "
    "23:59. Keep this in mind when you are asked about days and times. Meetings take place between 9am and 6pm. Do "
    "exactly what you are asked, without asking back, and say so when it is done."
)


def split_rows(split: str) -> list[dict[str, Any]]:
    """Return the rows of a set: example, validation or train."""
    before = sum(size for name, size in list(SIZES.items())[: list(SIZES).index(split)])
    return list(islice(draw_rows(), before, before + SIZES[split]))


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return split_rows("example")


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]] | str]:
    """Return the turns of a model that makes no mistake."""
    calls = [(call["name"], json.loads(call["arguments"])) for call in row["ground_truth"]]
    return [*calls, "Done."]


def draw_rows(seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Yield tasks without end, another sequence for every `seed`."""
    draw = Draw(seed)
    asked_before = set[str]()
    for number, toolkit in enumerate(cycle(TASKS)):
        asked, calls = _task(draw, toolkit, asked_before)
        asked_before.add(asked)
        yield {
            "id": number,
            "responses_create_params": {
                "input": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}],
                "tools": [tool.schema for tool in TOOLS.values()],
                "parallel_tool_calls": False,
                "temperature": 1.0,
            },
            "ground_truth": [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls],
            "category": f"{NAME}_{toolkit}",
            "environment_name": NAME,
            "world": HARBORLIGHT,
        }


def _task(draw: Draw, toolkit: str, asked_before: set[str]) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    while True:
        make = draw.pick(TASKS[toolkit])
        # Insist for a while on the task that was drawn: those of many calls are rarely clear at once.
        for _ in range(DRAWS_OF_A_KIND):
            script = Script()
            try:
                asked = make(draw, script)
            except Unclear:
                continue
            asked = asked if asked.endswith((".'", "?'")) else f"{asked}."
            if asked not in asked_before:
                return asked, script.calls


def write(path: Path = HERE / "data" / "example.jsonl", split: str = "example") -> None:
    """Write a set to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in split_rows(split)))


if __name__ == "__main__":
    for split in sys.argv[1:] or ["example"]:
        write(HERE / "data" / f"{split}.jsonl", split)
