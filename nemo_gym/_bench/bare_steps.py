# SPDX-License-Identifier: Apache-2.0
"""Steps a second of an environment without a server around it. This is a program for the Python of its server.

    python -m nemo_gym._bench.bare_steps gem_gym 2.0

It plays the example rows of the server in turn, with the actions that solve them, and prints a JSON object.
"""

import importlib
import json
import sys
import time
from typing import Any


def measure(server: str, seconds: float) -> dict[str, Any]:
    """Play episodes one after the other for so long; return them, how many steps were taken, and in which time."""
    environment = importlib.import_module(f"resources_servers.{server}.environment")
    data = importlib.import_module(f"resources_servers.{server}.generate_data")
    episodes = [(row, data.solution(row)) for row in data.rows()]
    steps = play(environment, episodes)
    began = time.process_time()  # the first round loads what is loaded late
    steps = 0
    while time.process_time() - began < seconds:
        steps += play(environment, episodes)
    return {"episodes": episodes, "steps": steps, "cpu_s": time.process_time() - began}


def play(environment: Any, episodes: list[tuple[dict[str, Any], list[str]]]) -> int:
    """Play each episode to its end; return the number of steps."""
    steps = 0
    for row, actions in episodes:
        made = environment.make(row)
        made.reset(seed=row["seed"])
        for action in actions:
            _, _, terminated, truncated, _ = made.step(action)
            steps += 1
            if terminated or truncated:
                break
        if callable(close := getattr(made, "close", None)):
            close()
    return steps


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], float(sys.argv[2]))))
