# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/workplace_assistant`."""

import sys
from pathlib import Path

from resources_servers.workplace_assistant.generate_data import SIZES, write

DATA = Path(__file__).parent / "data"


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (100 rows), train (1000) or example (5)."""
    if split not in SIZES:
        raise ValueError(f"there is no split {split!r}, but {', '.join(SIZES)}")
    path = DATA / f"{split}.jsonl"
    write(path, split)
    return path


if __name__ == "__main__":
    for split in sys.argv[1:] or ("validation", "train"):
        prepare(split)
