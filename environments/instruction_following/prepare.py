# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/instruction_following`."""

import json
import sys
from pathlib import Path
from typing import Any

from resources_servers.instruction_following.generate_data import all_rows, rows

DATA = Path(__file__).parent / "data"
FOLDS = 5


def _others() -> list[dict[str, Any]]:
    """All rows but the examples."""
    examples = {row["id"] for row in rows()}
    return [row for row in all_rows() if row["id"] not in examples]


SPLITS = {
    "validation": lambda: _others()[::FOLDS],
    "train": lambda: [row for number, row in enumerate(_others()) if number % FOLDS],
    "example": rows,
}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (a fifth of the tasks), train (the others) or example (5 rows)."""
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}, but {', '.join(SPLITS)}")
    path = DATA / f"{split}.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in SPLITS[split]()))
    return path


if __name__ == "__main__":
    for split in sys.argv[1:] or ("validation", "train"):
        prepare(split)
