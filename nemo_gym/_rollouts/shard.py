# SPDX-License-Identifier: Apache-2.0
"""One of several parts of a run that are collected apart, on machines that do not know of each other.

Tasks are dealt out by their index in the whole input, and keep it: outputs of all shards put together are those of one
run. The rollouts of a task stay together.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Shard:
    """Part `number`, from 1, of `total`."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read `K/N`; ValueError unless 1 ≤ K ≤ N."""
        found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise ValueError(f"must be K/N with K from 1 to N, such as 1/4, not {text!r}")
        return cls(int(found[1]), int(found[2]))

    def holds(self, task: int) -> bool:
        """Return whether the task with this index belongs to the shard."""
        return task % self.total == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


def describe_missing(shards: Sequence[Shard]) -> str | None:
    """Return what is missing to make `shards`, which are not empty, a whole run; None if nothing is."""
    totals = sorted({shard.total for shard in shards})
    if len(totals) > 1:
        cuts = " and ".join(map(str, totals))
        return f"these shards are cut in different ways, into {cuts} parts, so that tasks may be missing"
    found = sorted(shard.number for shard in shards)
    missing = [number for number in range(1, totals[0] + 1) if number not in found]
    if not missing:
        return None
    return f"shards {_listed(found)} of {totals[0]} were found; {_listed(missing)} missing"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
