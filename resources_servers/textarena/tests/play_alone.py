# SPDX-License-Identifier: Apache-2.0
"""Games of TextArena without NeMo Gym: what a server that plays them is compared with.

It runs in the server's virtual environment: `python play_alone.py play` or `replay`, with a JSON list of games on
standard input and their outcomes on standard output. A game has `env_id`, `players`, `seat` and `seed`, and, to be
replayed, the `moves` of its seat and those of the others in `others`.
"""

import json
import random
import re
import sys
from typing import Any

MOST_MOVES = 60


def pick_move(rng: random.Random, observation: str) -> str:
    """Return something that looks like a move; the game may find it illegal."""
    named = re.findall(r"\[[^\[\]\n]+\]", observation[-1500:])
    if not named or rng.random() < 0.1:
        return rng.choice(["", "pass", "[0]", "I do not know.", "[1 1]", "[[x]]"])
    return rng.choice(named)


def run(game: dict[str, Any], choose: Any) -> dict[str, Any]:
    """Play a game with moves that `choose(player, observation)` gives; None stops."""
    import textarena

    random.seed(game["seed"])
    env = textarena.make(game["env_id"])
    env.reset(num_players=game["players"], seed=game["seed"])
    moves: list[str] = []
    others: list[str] = []
    told = ""
    while True:
        player, observation = env.get_observation()
        if player == game["seat"]:
            told = observation
        move = choose(player, observation)
        if move is None:
            return {**game, "moves": moves, "others": others, "told": told, "reward": 0.0, "terminated": False}
        (moves if player == game["seat"] else others).append(move)
        is_over, _ = env.step(action=move)
        if is_over:
            reward = env.close()[0][game["seat"]]
            return {**game, "moves": moves, "others": others, "told": told, "reward": reward, "terminated": True}


def play(game: dict[str, Any]) -> dict[str, Any]:
    """Play a game at random, up to a number of moves."""
    rng = random.Random(game["seed"])
    made = iter(range(MOST_MOVES))
    return run(game, lambda player, told: pick_move(rng, told) if next(made, None) is not None else None)


def replay(game: dict[str, Any]) -> dict[str, Any]:
    """Play the moves of a game again."""
    moves, others = iter(game["moves"]), iter(game["others"])
    return run(game, lambda player, told: next(moves if player == game["seat"] else others, None))


if __name__ == "__main__":
    out, sys.stdout = sys.stdout, sys.stderr  # some games print
    act = {"play": play, "replay": replay}[sys.argv[1]]
    json.dump([act(game) for game in json.load(sys.stdin)], out)
