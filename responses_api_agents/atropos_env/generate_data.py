# SPDX-License-Identifier: Apache-2.0
"""Write the example rows, for the sample environments in this folder. This does not need the library."""

import json
from pathlib import Path
from typing import Any

from responses_api_agents.atropos_env.catalog import write_row

HERE = Path(__file__).parent
SAMPLES = {"add_numbers.py:AddNumbers": 3, "guess_number.py:GuessNumber": 2}


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    agent = {"type": "responses_api_agents", "name": HERE.name}
    return [
        {**write_row(f"responses_api_agents/{HERE.name}/sample_environments/{name}", index, {}), "agent_ref": agent}
        for name, count in SAMPLES.items()
        for index in range(count)
    ]


def write(path: Path) -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))


if __name__ == "__main__":
    write(HERE / "data" / "example.jsonl")
