# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/instruction_following`."""

from pathlib import Path

from environments._splits import main, write_split
from resources_servers.instruction_following.generate_data import EXAMPLE_ROWS, rows, train_rows, validation_rows

SPLITS = {
    "validation": validation_rows,
    # The examples, which the train set of the server begins with, are a split of their own here.
    "train": lambda: train_rows()[EXAMPLE_ROWS:],
    "example": rows,
}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (a fifth of the tasks), train (the others) or example (5 rows)."""
    return write_split(__file__, SPLITS, split)


if __name__ == "__main__":
    main(prepare)
