# SPDX-License-Identifier: Apache-2.0
"""Files of small runs."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.jsonl_files import write

__all__ = ["write"]


@pytest.fixture
def result():
    """A row of a rollouts file."""

    def result(task: int, rollout: int, reward: Any, agent: str = "a", **fields: Any) -> dict[str, Any]:
        return {
            "_ng_task_index": task,
            "_ng_rollout_index": rollout,
            "agent_ref": {"name": agent},
            "responses_create_params": {"input": "long"},
            "response": {"output": ["long"], "usage": {"input_tokens": 10, "output_tokens": 2}},
            "reward": reward,
            **fields,
        }

    return result


@pytest.fixture
def planned():
    """A row of a materialized inputs file."""

    def planned(task: int, rollout: int, agent: str = "a", **fields: Any) -> dict[str, Any]:
        return {
            "_ng_task_index": task,
            "_ng_rollout_index": rollout,
            "agent_ref": {"name": agent},
            "responses_create_params": {"input": f"question {task}"},
            "answer": str(task),
            **fields,
        }

    return planned


@pytest.fixture
def run(write, result, planned):
    """A rollouts file with these rewards per task (None: not scored), and its materialized inputs."""

    def run(name: str, rewards: list[list[Any]], agent: str = "a", **fields: Any) -> Path:
        keys = [(t, r, reward) for t, runs in enumerate(rewards) for r, reward in enumerate(runs)]
        stem = name.removesuffix(".jsonl")
        write(f"{stem}_materialized_inputs.jsonl", [planned(t, r, agent, **fields) for t, r, _ in keys])
        return write(name, [result(t, r, reward, agent) for t, r, reward in keys if reward is not None])

    return run
