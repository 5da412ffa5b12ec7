# SPDX-License-Identifier: Apache-2.0
"""Write the example rows, always the same ones: lakes that are not slippery, and blackjack hands that can be won."""

import json
from collections import deque
from pathlib import Path
from typing import Any

from resources_servers.gymnasium_text.known_environments import find_known, make_row

HERE = Path(__file__).parent
AGENT = {"type": "responses_api_agents", "name": "gymnasium_text_gymnasium_agent"}
OWN_LAKE = ["SFF", "HFH", "HFG"]


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    firm = {"is_slippery": False}
    made = [
        make_row("FrozenLake-v1", 0, env_kwargs={**firm, "desc": OWN_LAKE}),
        make_row("FrozenLake-v1", 1, env_kwargs=firm),
        make_row("FrozenLake8x8-v1", 2, env_kwargs=firm),
        make_row("Blackjack-v1", 3),
        make_row("Blackjack-v1", 6),
    ]
    return [{**row, "agent_ref": AGENT} for row in made]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a player who knows what the environment will do. This needs the library."""
    import gymnasium

    environment = gymnasium.make(row["env_id"], **row.get("env_kwargs", {}))
    start, _ = environment.reset(seed=row["seed"])
    moves = find_known(row["env_id"]).actions
    table = getattr(environment.unwrapped, "P", None)
    path = _find_win(environment, row["seed"]) if table is None else _find_path(table, int(start))
    return [f"<action>{moves[action]}</action>" for action in path]


def _find_path(table: Any, start: int) -> list[int]:
    """Return the shortest path to a rewarded end in a deterministic transition table."""
    todo = deque([(start, list[int]())])
    seen = {start}
    while todo:
        state, path = todo.popleft()
        for action, ((_, after, reward, is_over), *_) in table[state].items():
            if is_over and reward != 0:  # falling into a hole also ends the episode, with reward 0
                return [*path, action]
            if not is_over and after not in seen:
                seen.add(after)
                todo.append((after, [*path, action]))
    raise ValueError("no path leads to a rewarded end")


def _find_win(environment: Any, seed: int) -> list[int]:
    """Return the hits before sticking that win the hand; just stick if it cannot be won."""
    for hits in range(6):
        environment.reset(seed=seed)
        for action in [1] * hits + [0]:
            _, reward, is_over, *_ = environment.step(action)
            if is_over:
                break
        if reward > 0:
            return [1] * hits + [0]
    return [0]


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    write()
