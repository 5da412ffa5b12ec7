# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/blackjack`."""

from pathlib import Path

from environments._splits import main, write_split
from resources_servers.blackjack.generate_data import all_rows, rows

SPLITS = {
    "validation": lambda: all_rows(count=500, first_seed=10_000),
    "train": lambda: all_rows(count=5000, first_seed=100_000),
    "example": rows,
}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (500 hands), train (5000) or example (5)."""
    return write_split(__file__, SPLITS, split)


if __name__ == "__main__":
    main(prepare)
