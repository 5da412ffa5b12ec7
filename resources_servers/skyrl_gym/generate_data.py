# SPDX-License-Identifier: Apache-2.0
"""Write the example rows, always the same ones: one for each environment that needs no network."""

import json
from pathlib import Path
from typing import Any

from resources_servers.skyrl_gym.tasks import MAKERS, make_row, make_task

HERE = Path(__file__).parent
SEED = 1
AGENT = {"type": "responses_api_agents", "name": "skyrl_gym_gymnasium_agent"}


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return [{**make_row(env_class, SEED), "agent_ref": AGENT} for env_class in MAKERS]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that solves a generated row."""
    return [make_task(row["env_class"], row["seed"]).solution]


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    write()
