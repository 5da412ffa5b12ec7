# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/blackjack`."""

import json
import sys
from pathlib import Path

from resources_servers.blackjack.generate_data import all_rows, rows

DATA = Path(__file__).parent / "data"
SPLITS = {
    "validation": lambda: all_rows(count=500, first_seed=10_000),
    "train": lambda: all_rows(count=5000, first_seed=100_000),
    "example": rows,
}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (500 hands), train (5000) or example (5)."""
    if split not in SPLITS:
        raise ValueError(f"there is no split {split!r}, but {', '.join(SPLITS)}")
    path = DATA / f"{split}.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in SPLITS[split]()))
    return path


if __name__ == "__main__":
    for split in sys.argv[1:] or ("validation", "train"):
        prepare(split)
