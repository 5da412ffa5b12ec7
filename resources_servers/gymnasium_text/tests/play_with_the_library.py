# SPDX-License-Identifier: Apache-2.0
"""Plays rows with Gymnasium alone and prints, for each, the actions that were drawn and the rewards that they got.

    python play_with_the_library.py FILE

where FILE holds rows as JSON. The actions are drawn from the action space, with the row's seed.
"""

import json
import sys

import gymnasium


def main(file):
    with open(file, encoding="utf-8") as given:
        print(json.dumps([play(row) for row in json.load(given)]))


def play(row):
    environment = gymnasium.make(row["env_id"], **row.get("env_kwargs", {}))
    environment.reset(seed=row["seed"])
    environment.action_space.seed(row["seed"])
    actions, rewards, is_over = [], [], False
    while not is_over:
        actions.append(int(environment.action_space.sample()))
        _, reward, terminated, truncated, _ = environment.step(actions[-1])
        rewards.append(float(reward))
        is_over = terminated or truncated
    return {"actions": actions, "rewards": rewards, "terminated": bool(terminated), "truncated": bool(truncated)}


if __name__ == "__main__":
    main(sys.argv[1])
