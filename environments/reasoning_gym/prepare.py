# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/reasoning_gym`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resources_servers.reasoning_gym.generate_data import rows
from resources_servers.reasoning_gym.generation import generate, task_names

DATA = Path(__file__).parent / "data"


def _rounds(number: int, seed: int) -> Iterator[dict[str, Any]]:
    """So many rows of every task."""
    tasks = task_names()
    return generate(tasks, number * len(tasks), seed)


SPLITS = {"validation": lambda: _rounds(2, seed=1000), "train": lambda: _rounds(10, seed=2000), "example": rows}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (2 rows of every task), train (10) or example (5 rows)."""
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}, but {', '.join(SPLITS)}")
    path = DATA / f"{split}.jsonl"
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in SPLITS[split]()), encoding="utf-8")
    return path


if __name__ == "__main__":
    for split in sys.argv[1:] or ("validation", "train"):
        prepare(split)
