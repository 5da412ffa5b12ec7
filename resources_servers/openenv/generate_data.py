# SPDX-License-Identifier: Apache-2.0
"""Write the example rows: five seeds, each with a number to guess in `example_server.py`."""

import json
import random
from pathlib import Path
from typing import Any

from resources_servers.openenv.catalog import make_row

HERE = Path(__file__).parent
HIGHEST = 20


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return [make_row("example", seed, {}) for seed in range(5)]


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the turns of a model that knows the number."""
    return [("step", {"number": str(random.Random(row["seed"]).randint(1, HIGHEST))})]


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()), encoding="utf-8")


if __name__ == "__main__":
    write()
