# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/workplace_assistant`."""

from functools import partial
from pathlib import Path

from environments._splits import main, write_split
from resources_servers.workplace_assistant.generate_data import SIZES, split_rows

SPLITS = {split: partial(split_rows, split) for split in SIZES}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (100 rows), train (1000) or example (5)."""
    return write_split(__file__, SPLITS, split)


if __name__ == "__main__":
    main(prepare)
