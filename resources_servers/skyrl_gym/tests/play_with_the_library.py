# SPDX-License-Identifier: Apache-2.0
"""Plays rows with the library alone, as its README does, and prints the rewards of every step: what ours must equal.

    python play_with_the_library.py FILE

where FILE holds pairs of a row and the replies to it, as JSON.
"""

import json
import os
import sqlite3
import sys
import tempfile
from types import SimpleNamespace

import skyrl_gym


def main(file: str) -> None:
    with open(file, encoding="utf-8") as given:
        played = [play(row, replies) for row, replies in json.load(given)]
    print(json.dumps(played))


def play(row, replies):
    settings = SimpleNamespace(db_path=build_database(row)) if "db_script" in row else {}
    environment = skyrl_gym.make(row["env_class"], env_config=settings, extras=row)
    environment.init(row["responses_create_params"]["input"])
    rewards = []
    for reply in replies:
        step = environment.step(reply)
        rewards.append(step["reward"])
        if step["done"]:
            break
    return rewards


def build_database(row):
    root = tempfile.mkdtemp()
    file = os.path.join(root, "spider", "database", row["db_id"], f"{row['db_id']}.sqlite")
    os.makedirs(os.path.dirname(file))
    with sqlite3.connect(file) as connection:
        connection.executescript(row["db_script"])
    return root


if __name__ == "__main__":
    main(sys.argv[1])
