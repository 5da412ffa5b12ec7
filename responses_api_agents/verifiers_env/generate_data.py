# SPDX-License-Identifier: Apache-2.0
"""Write the example rows, always the same ones, from the sample taskset in this folder.

This needs the library: run it with the Python of the server's virtual environment. `catalog.make_rows` makes rows of
other tasksets.
"""

import json
from pathlib import Path
from typing import Any

from responses_api_agents.verifiers_env.catalog import make_rows

HERE = Path(__file__).parent
SEED = 42
ROWS = 5
AGENT = "verifiers_env"


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    agent = {"type": "responses_api_agents", "name": AGENT}
    taskset = f"responses_api_agents/{HERE.name}/sample_tasksets/count_letters"
    return [{**row, "agent_ref": agent} for row in make_rows(taskset, ROWS, SEED, {})]


if __name__ == "__main__":
    (HERE / "data" / "example.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
