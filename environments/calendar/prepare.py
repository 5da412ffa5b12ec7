# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/calendar`."""

from pathlib import Path

from environments._splits import main, write_split
from resources_servers.calendar.generate_data import all_rows, rows

SPLITS = {
    "validation": lambda: all_rows(count=100, seed=1),
    "train": lambda: all_rows(count=1000, seed=2),
    "example": rows,
}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (100 rows), train (1000) or example (5)."""
    return write_split(__file__, SPLITS, split)


if __name__ == "__main__":
    main(prepare)
