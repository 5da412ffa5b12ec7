# SPDX-License-Identifier: Apache-2.0
"""Analyse rollouts with pandas: which tasks are hard, and do longer answers score better?

    pip install pandas
    python examples/analyse_rollouts.py results/demo/rollouts.jsonl

A rollouts file has one JSON object per line: the task's own fields, `responses_create_params`, `response`, `reward`,
and the indices of the task and the rollout. `gym demo` writes one.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from nemo_gym import grading
from nemo_gym.openai_utils import NeMoGymResponse


def read_rollouts(path: Path) -> pd.DataFrame:
    """Return a table with one row per rollout."""
    with path.open() as file:
        return pd.DataFrame([describe(json.loads(line)) for line in file])


def describe(rollout: dict[str, Any]) -> dict[str, Any]:
    """Return the table row of a rollout."""
    response = NeMoGymResponse.model_validate(rollout["response"])
    return {
        "task": rollout["_ng_task_index"],
        "reward": rollout["reward"],
        "characters": len(grading.assistant_text(response)),
        "tool_calls": sum(item.type == "function_call" for item in response.output),
        "output_tokens": response.usage.output_tokens if response.usage else None,
    }


def main() -> None:
    """Print the hardest tasks, and what correlates with the reward."""
    rollouts = read_rollouts(Path(sys.argv[1]))
    tasks = rollouts.groupby("task")["reward"].agg(["count", "mean", "std"]).sort_values("mean")
    print(f"{len(rollouts)} rollouts of {len(tasks)} tasks, mean reward {tasks['mean'].mean():.3f}\n")
    print(tasks.head(5).to_string(float_format="%.2f"))
    print(f"\n{(tasks['std'] > 0).sum()} tasks are solved by some rollouts and not by others: these teach the most")
    print(
        rollouts.groupby("reward")[["characters", "tool_calls", "output_tokens"]].mean().to_string(float_format="%.1f")
    )


if __name__ == "__main__":
    main()
