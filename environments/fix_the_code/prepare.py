# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment with the generator of `resources_servers/workspace_tasks`."""

from pathlib import Path

from environments._splits import main, write_split
from resources_servers.workspace_tasks.generate_data import EXAMPLE_ROWS, all_rows, rows

VALIDATION_ROWS = 24
_TRAIN_START = EXAMPLE_ROWS + VALIDATION_ROWS

SPLITS = {
    "validation": lambda: all_rows()[EXAMPLE_ROWS:_TRAIN_START],
    "train": lambda: all_rows()[_TRAIN_START:],
    "example": rows,
}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (24 tasks), train (the others) or example (5 rows)."""
    return write_split(__file__, SPLITS, split)


if __name__ == "__main__":
    main(prepare)
