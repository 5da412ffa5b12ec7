# SPDX-License-Identifier: Apache-2.0
"""Rollouts as the metrics hold them, for tests."""

from collections.abc import Mapping

from nemo_gym._metrics.rollouts import Key, MeasuredRollout


def make_rollout(key: Key, numbers: Mapping[str, float]) -> MeasuredRollout:
    """Return a rollout with these numbers, the reward among them."""
    return MeasuredRollout(key, numbers["reward"], tuple(numbers), tuple(numbers.values()))
