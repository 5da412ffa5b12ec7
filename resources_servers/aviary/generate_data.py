# SPDX-License-Identifier: Apache-2.0
"""Write the example rows: five stories for the library's `dummy` environment. `solution` solves each."""

import json
from pathlib import Path
from typing import Any

from resources_servers.aviary.catalog import TOPICS, make_row

HERE = Path(__file__).parent


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return [make_row("dummy", number, 0, {"handle_tool_exc": True}) for number in range(len(TOPICS))]


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the turns of a model that solves `row`."""
    return [("print_story", {"story": f"Once there was {row['arguments']['task']}."})]


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()), encoding="utf-8")


if __name__ == "__main__":
    write()
