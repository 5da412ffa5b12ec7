# SPDX-License-Identifier: Apache-2.0
"""Write the example rows, always the same ones, from the sample environments in this folder.

This needs the library: run it with the Python of the server's virtual environment. `catalog.make_rows` makes rows of
other environments.
"""

import json
from pathlib import Path
from typing import Any

from responses_api_agents.verifiers_v0_env.catalog import make_rows

HERE = Path(__file__).parent
SEED = 42
AGENT = "verifiers_v0_env"
SAMPLES = {"reverse_words": 2, "guess_number": 1, "shop_till": 2}


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    agent = {"type": "responses_api_agents", "name": AGENT}
    return [
        {**row, "agent_ref": agent}
        for name, count in SAMPLES.items()
        for row in make_rows(f"responses_api_agents/{HERE.name}/sample_environments/{name}.py", count, SEED, {})
    ]


if __name__ == "__main__":
    (HERE / "data" / "example.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
