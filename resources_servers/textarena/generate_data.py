# SPDX-License-Identifier: Apache-2.0
"""Write the example rows, always the same ones: five games, each with moves that win it.

This does not need the library. `catalog.py`, which does, makes more rows of any game.
"""

import json
from pathlib import Path
from typing import Any

from resources_servers.textarena.catalog import INSTRUCTION

HERE = Path(__file__).parent
AGENT = "textarena_gymnasium_agent"
GAMES: tuple[tuple[dict[str, Any], list[str]], ...] = (
    (
        {"env_id": "TowerOfHanoi-v0", "players": 1, "seed": 1},
        ["[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"],
    ),
    ({"env_id": "GuessTheNumber-v0", "players": 1, "seed": 2}, ["[2]"]),
    ({"env_id": "TicTacToe-v0", "players": 2, "seat": 0, "opponent": "random", "seed": 3}, ["[4]", "[0]", "[8]"]),
    ({"env_id": "TicTacToe-v0", "players": 2, "seat": 1, "opponent": "first", "seed": 4}, ["[8]", "[2]", "[5]"]),
    ({"env_id": "ConnectFour-v0", "players": 2, "seat": 0, "opponent": "random", "seed": 0}, ["[col 3]"] * 4),
)


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return [
        {
            "responses_create_params": {"input": [{"role": "system", "content": INSTRUCTION}]},
            **game,
            "agent_ref": {"type": "responses_api_agents", "name": AGENT},
        }
        for game, _ in GAMES
    ]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the moves of a player who wins."""
    return next(moves for game, moves in GAMES if game.items() <= row.items())


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    write()
