# SPDX-License-Identifier: Apache-2.0
"""Write the example rows, always the same ones. A row needs only an id and a seed, so GEM is not needed here.

`solution` is what a model that knows the episode would say.
"""

import json
from pathlib import Path
from typing import Any

from resources_servers.gem_gym.catalog import make_row

HERE = Path(__file__).parent
AGENT = "gem_gym_gymnasium_agent"
SEED = 0
MOVES = {
    "game:GuessTheNumber-v0-easy": ["7"],
    "game:Mastermind-v0-easy": ["4 6"],
    "game:TowerofHanoi-v0-easy": ["A C", "A B", "C B", "A C", "B A", "B C", "A C"],
    "rg:chain_sum": ["4"],
    "rg:leg_counting": ["68"],
}
"""The environments of the examples, each with the moves that solve the episode of this seed."""


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    agent = {"type": "responses_api_agents", "name": AGENT}
    return [{**make_row(environment_id, SEED), "agent_ref": agent} for environment_id in MOVES]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that solves `row`."""
    return [f"\\boxed{{{move}}}" for move in MOVES[row["environment_id"]]]


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    write()
