# SPDX-License-Identifier: Apache-2.0
"""Rollouts as the metrics hold them, for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nemo_gym._results.aggregate_files import AgentAggregate, Requested, aggregate_rollouts
from nemo_gym._results.metrics.rollout_metrics import Key, MeasuredRollout
from nemo_gym._results.result_rows import read_rollouts


def make_rollout(key: Key, numbers: Mapping[str, float]) -> MeasuredRollout:
    """Return a rollout with these numbers, the reward among them."""
    return MeasuredRollout(key, numbers["reward"], tuple(numbers), tuple(numbers.values()))


def aggregate_files(
    paths: Sequence[Path], requested: Requested | None = None, answer_keys: Mapping[str, str] | None = None
) -> list[AgentAggregate]:
    """Return the metrics of every agent in these rollouts files."""
    agents = read_rollouts(paths, answer_keys=answer_keys)
    return aggregate_rollouts(agents, requested=requested, answer_keys=answer_keys)
