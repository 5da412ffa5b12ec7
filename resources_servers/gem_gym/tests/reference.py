# SPDX-License-Identifier: Apache-2.0
"""Play environments with GEM alone, and write down what happened: `python reference.py ASKED FILE`.

ASKED is JSON: `{"ids": null, "seeds": [0, 1], "args": {}}`; null means all that need no network.

This runs with the interpreter of the server, and uses none of its code. A first play finds the actions, a second one
takes them again: games draw from the generator that `sample_random_action` draws from, too.
"""

import itertools
import json
import random
import sys
from collections.abc import Iterator
from typing import Any

import gem
from gem.envs.registration import ENV_REGISTRY

WORD_GAMES = ("Wordle", "Hangman", "WordSearch")
# As they are registered, GEM cannot make these two; a reset draws the argument anew.
REPAIRED_ARGS = {"game:FifteenPuzzle-v0-random": {"num_rows": 2}, "game:Crosswords-v0-random": {"hardcore": False}}
NO_BOX = "I would rather not say."


def list_offline() -> list[str]:
    """Return the ids of games and reasoning tasks that need no network."""
    ids = [each for each in ENV_REGISTRY if each.startswith(("game:", "rg:")) and each != "rg:composite"]
    return [each for each in ids if not each.startswith(tuple(f"game:{name}" for name in WORD_GAMES))]


def choose_actions(environment_id: str, environment: Any, seed: int) -> list[list[str]]:
    """Return some plays of an episode: of a random player and of a clumsy one, or right, wrong and no answers."""
    environment.reset(seed=seed)
    if environment_id.startswith("rg:"):
        return [[f"So \\boxed{{{environment.data['answer']}}}"], ["\\boxed{42}"], [NO_BOX]]
    player = random.Random(seed)
    played = []
    for number in itertools.count(1):
        played.append(_choose_move(environment_id, environment, player))
        _, _, terminated, truncated, _ = environment.step(played[-1])
        if terminated or truncated:
            clumsy = ["\\boxed{up up 99}", NO_BOX]
            return [played, [*played[: number // 2], *clumsy], [NO_BOX]]
    raise AssertionError("unreachable: every game ends")


def _choose_move(environment_id: str, environment: Any, player: random.Random) -> str:
    """Return a move of the right form; three games have no such sampler, or one that forgets the box."""
    match environment_id.split(":")[1].split("-")[0]:
        case "FifteenPuzzle":
            return f"\\boxed{{{player.choice(['up', 'down', 'left', 'right'])}}}"
        case "TowerofHanoi":
            return f"\\boxed{{{' '.join(player.sample('ABC', 2))}}}"
        case "Sudoku":
            size = environment.scale
            row, column = player.randint(1, size), player.randint(1, size)
            right = environment.full_grid[row - 1][column - 1]
            return f"\\boxed{{{row} {column} {player.choice([right, player.randint(1, size)])}}}"
    return str(environment.sample_random_action())


def play(environment: Any, seed: int, actions: list[str]) -> dict[str, Any]:
    """Return the first observation, and for each action its reward, whether that was the end, and what was seen."""
    observation, info = environment.reset(seed=seed)
    steps: list[Any] = []
    for action in actions:
        try:
            seen, reward, terminated, truncated, told = environment.step(action)
        except Exception as error:
            steps.append({"raised": repr(error)})
            break
        steps.append({"seen": [seen, told.get("suffix")], "reward": reward, "end": [terminated, truncated]})
        if terminated or truncated:
            break
    return {"seed": seed, "actions": actions[: len(steps)], "first": [observation, info.get("suffix")], "steps": steps}


def main() -> None:
    asked = json.loads(sys.argv[1])
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        for environment_id in asked["ids"] or list_offline():
            for episode in _play_all(environment_id, asked):
                file.write(json.dumps(episode) + "\n")


def _play_all(environment_id: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    args = {**(REPAIRED_ARGS.get(environment_id) or {}), **asked.get("args", {})}
    environment = gem.make(environment_id, **args)
    for seed in asked["seeds"]:
        for actions in choose_actions(environment_id, environment, seed):
            yield {"id": environment_id, **play(environment, seed, actions)}


if __name__ == "__main__":
    main()
