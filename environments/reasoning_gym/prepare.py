# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/reasoning_gym`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from environments._splits import main, write_split
from resources_servers.reasoning_gym.generate_data import generate, list_tasks, rows


def _rounds(number: int, seed: int) -> Iterator[dict[str, Any]]:
    """So many rows of every task."""
    tasks = list_tasks()
    return generate(tasks, number * len(tasks), seed)


SPLITS = {"validation": lambda: _rounds(2, seed=1000), "train": lambda: _rounds(10, seed=2000), "example": rows}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (2 rows of every task), train (10) or example (5 rows)."""
    return write_split(__file__, SPLITS, split)


if __name__ == "__main__":
    main(prepare)
