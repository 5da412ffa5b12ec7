# SPDX-License-Identifier: Apache-2.0
"""What a format gets: a rollout with its row, its branches, and the facts that every sample states."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym._rollouts.outcomes import Row
from nemo_gym._training.alignment import Branch
from nemo_gym._training.handover import restore_row
from nemo_gym._training.record import TrainableRollout
from nemo_gym._util.row_keys import TOKEN_DRIFT_KEY


@dataclass(frozen=True, slots=True)
class Sample:
    """A rollout to export, with its turns joined, and the row that it was read from."""

    rollout: TrainableRollout
    row: Row

    @classmethod
    def of(cls, rollout: TrainableRollout, row: Row) -> "Sample":
        """Return the sample of a rollout that was read from `row`, which may have been handed over since."""
        if TOKEN_DRIFT_KEY in row:
            row = restore_row(row)
        return cls(rollout, row)

    @property
    def reward(self) -> float:
        """The reward, which an exported rollout always has."""
        if self.rollout.reward is None:
            raise ValueError("a rollout without a reward is never exported")
        return self.rollout.reward

    def iter_branches(self) -> Iterator[tuple[int, Branch]]:
        """Yield the number of each branch in which the model wrote something, and the branch."""
        for number, branch in enumerate(self.rollout.branches):
            if 1 in branch.mask:
                yield number, branch

    def describe(self, branch: int | None = None) -> dict[str, Any]:
        """Return which rollout this is, its group if known, and what a trainer should know about it."""
        rollout = self.rollout
        start, end = rollout.policy_versions
        facts: dict[str, Any] = {
            "task_index": rollout.task_index,
            "rollout_index": rollout.rollout_index,
            "agent": rollout.agent,
            "rollout_id": rollout.rollout_id,
            "cut_off": rollout.cut_off,
            "drift": rollout.drift,
            "policy_version_start": start,
            "policy_version_end": end,
        }
        if rollout.group_size is not None:
            facts |= rollout.group_facts
        if branch is not None:
            facts |= {"branch": branch, "branches": len(rollout.branches)}
            # Its reward is that of every branch; weighted like this, a rollout counts once however often it forked.
            facts["weight"] = 1 / sum(1 for _ in self.iter_branches())
        return facts


@dataclass(frozen=True)
class GroupSamples:
    """The exported rollouts of one group, ordered by index, and the rows of those that failed."""

    samples: Sequence[Sample]
    failures: Sequence[Row]


Record = dict[str, Any]
BuildSamples = Callable[[Sample], Iterator[Record]]
BuildGroup = Callable[[GroupSamples], Iterator[Record]]


@dataclass(frozen=True)
class Format:
    """One format: what it is for, and how to build its records from one rollout or a whole group."""

    name: str
    what: str
    build: BuildSamples | None = None
    build_group: BuildGroup | None = None
    needs_tokens: bool = True
    needs_groups: bool = True
    """Whether a record says how large its group is and how many of it failed."""
    pairs: bool = False
    """Whether its records compare two rollouts."""
    parquet: bool = False
    """Whether it can also be written as parquet."""
