# SPDX-License-Identifier: Apache-2.0
"""Write the tasks of this environment: always the same ones.

A row is a hand, by its seed. The train set takes hands as they come. The examples are hands that can be won, so that a
model that could see the deck has the full reward: `solution` does.
"""

import json
from pathlib import Path
from typing import Any

from resources_servers.blackjack.app import seed_of
from resources_servers.blackjack.game import Game

HERE = Path(__file__).parent
ROWS = 100
FIRST_SEED = 1000
AGENT = "blackjack_gymnasium_agent"
MOST_STEPS = 5

RULES = """\
You play blackjack against a dealer, with one deck of cards. Face cards count 10, an ace counts 11 or 1. Whoever has \
more without going over 21 wins; you see one of the dealer's two cards. On each turn you may take a card or stop; \
when you stop, the dealer draws until reaching at least 17. If you go over 21, you lose at once.
Say what you do as <action>hit</action> or <action>stand</action>."""


def rows() -> list[dict[str, Any]]:
    """Return the example rows: two hands that are won by standing and three by hitting first."""
    lines = [(seed, _winning_turns(_row(seed))) for seed in range(FIRST_SEED)]
    by_standing = [seed for seed, turns in lines if turns == ["stand"]]
    by_hitting = [seed for seed, turns in lines if turns is not None and "hit" in turns]
    return [_row(seed) for seed in sorted([*by_standing[:2], *by_hitting[:3]])]


def all_rows(count: int = ROWS, first_seed: int = FIRST_SEED) -> list[dict[str, Any]]:
    """Return hands as they come, after those that the examples are taken from."""
    return [_row(seed) for seed in range(first_seed, first_seed + count)]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a player who knows the deck; of a hand that cannot be won, those of one who stands."""
    return [f"<action>{turn}</action>" for turn in _winning_turns(row) or ["stand"]]


def _winning_turns(row: dict[str, Any]) -> list[str] | None:
    for hits in range(MOST_STEPS):
        game = Game.dealt(seed_of(row["verifier_metadata"]))
        if any(game.hit() for _ in range(hits)):
            return None
        if game.stand() == "win":
            return ["hit"] * hits + ["stand"]
    return None


def _row(seed: int) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "system", "content": RULES}]},
        "verifier_metadata": {"seed": seed},
        "agent_ref": {"type": "responses_api_agents", "name": AGENT},
    }


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and the train rows to `train.jsonl` beside it."""
    for file, lines in ((path, rows()), (path.with_name("train.jsonl"), all_rows())):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
