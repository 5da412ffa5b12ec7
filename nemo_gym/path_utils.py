# SPDX-License-Identifier: Apache-2.0
"""Paths of the files beside a rollouts file: `<stem>_<what>` in the same folder."""

from pathlib import Path


def failures_path_for(output_path: str | Path) -> Path:
    """Return the path of the rollouts that ended without a reward."""
    return _sibling(output_path, "failures.jsonl")


def materialized_inputs_path_for(output_path: str | Path) -> Path:
    """Return the path of the planned rollouts: every row, expanded and repeated."""
    return _sibling(output_path, "materialized_inputs.jsonl")


def aggregate_metrics_path_for(output_path: str | Path) -> Path:
    """Return the path of a run's metrics per agent."""
    return _sibling(output_path, "aggregate_metrics.json")


def reward_profiling_path_for(output_path: str | Path) -> Path:
    """Return the path of a run's reward profile per task."""
    return _sibling(output_path, "reward_profiling.jsonl")


def agent_metrics_path_for(output_path: str | Path) -> Path:
    """Return the path of a run's reward profile per agent."""
    return _sibling(output_path, "agent_metrics.json")


def _sibling(output_path: str | Path, what: str) -> Path:
    path = Path(output_path)
    return path.with_name(f"{path.stem}_{what}")
