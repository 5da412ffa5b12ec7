# SPDX-License-Identifier: Apache-2.0
"""The canonical trainable rollout: what a trainer learns from, one record for every source and every trainer.

    for rollout in read_trainable_rollouts("results/rollouts.jsonl"):
        if rollout.is_valid:
            for branch in rollout.branches:
                train(branch.prompt_ids, branch.completion_ids, branch.mask, branch.log_probs, rollout.reward)

Trainer-specific formats are views of it: `gym export`.
"""

import os
from collections.abc import Iterator

from nemo_gym._results.result_rows import read_results
from nemo_gym._training.alignment import Branch, Decode, Drift, Turn
from nemo_gym._training.record import SCHEMA, TrainableRollout, TrainableRolloutError

__all__ = [
    "SCHEMA",
    "Branch",
    "Decode",
    "Drift",
    "TrainableRollout",
    "TrainableRolloutError",
    "Turn",
    "read_trainable_rollouts",
]


def read_trainable_rollouts(path: str | os.PathLike[str], decode: Decode | None = None) -> Iterator[TrainableRollout]:
    """Yield the rollouts in a rollouts file or a failures file, one at a time, including invalid ones."""
    for line in read_results(path):
        yield TrainableRollout.from_row(line.row, decode)
