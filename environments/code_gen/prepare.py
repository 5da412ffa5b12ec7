# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, from the generator of `resources_servers/code_gen`."""

from pathlib import Path
from typing import Any

from environments._splits import main, write_split
from resources_servers.code_gen.generate_data import all_rows, rows

FOLDS = 5


def _others() -> list[dict[str, Any]]:
    """Return all rows but the examples."""
    examples = {row["hash_id"] for row in rows()}
    return [row for row in all_rows() if row["hash_id"] not in examples]


SPLITS = {
    "validation": lambda: _others()[::FOLDS],
    "train": lambda: [row for number, row in enumerate(_others()) if number % FOLDS],
    "example": rows,
}


def prepare(split: str = "validation") -> Path:
    """Write a split: validation (a fifth of the tasks), train (the others) or example (5 rows)."""
    return write_split(__file__, SPLITS, split)


if __name__ == "__main__":
    main(prepare)
