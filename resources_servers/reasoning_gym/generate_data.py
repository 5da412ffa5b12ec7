# SPDX-License-Identifier: Apache-2.0
"""Write the example rows of this environment: one of each of five tasks, always the same with one version of the wheel.

`solution` is what a model says that knows the answer. More rows are written by `scripts/create_dataset.py`.
"""

import json
from pathlib import Path
from typing import Any

from resources_servers.reasoning_gym.generation import generate

HERE = Path(__file__).parent
SEED = 42
EXAMPLE_TASKS = ("leg_counting", "chain_sum", "letter_counting", "knights_knaves", "mini_sudoku")


def rows() -> list[dict[str, Any]]:
    """The example rows."""
    return list(generate(EXAMPLE_TASKS, len(EXAMPLE_TASKS), SEED))


def solution(row: dict[str, Any]) -> list[str]:
    """The turns of a model that solves `row`."""
    return [f"<answer>{row['answer']}</answer>"]


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows()), encoding="utf-8")


if __name__ == "__main__":
    write()
