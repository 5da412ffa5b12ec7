# SPDX-License-Identifier: Apache-2.0
"""A result row as the metrics see it: which rollout of which task it is, and the numbers it carries.

Everything else in a row, above all the response itself, is left behind here, so that a million rows fit in memory.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nemo_gym._metrics.describe import Number, finite, is_broken, warn_of_broken
from nemo_gym._util.row_keys import (
    BOOKKEEPING_PREFIX,
    RESPONSE_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)


class RolloutKey(NamedTuple):
    """The identity of a rollout within a run."""

    task: int
    rollout: int

    def __str__(self) -> str:
        return f"{self.task}:{self.rollout}"


class Measured(NamedTuple):
    """One rollout, reduced to its numbers."""

    key: RolloutKey
    numbers: dict[str, Number]
    usage: dict[str, Number]
    """The token counts of `response.usage`."""

    def fields(self) -> dict[str, Number]:
        """All numbers in one record. A field that the verifier reports under the name of a token count wins."""
        return {**self.numbers, **self.usage, **self.numbers}

    def info(self) -> dict[str, Any]:
        """The entry of this rollout in `rollout_infos`."""
        return {
            "rollout_id": str(self.key),
            TASK_INDEX_KEY_NAME: self.key.task,
            ROLLOUT_INDEX_KEY_NAME: self.key.rollout,
            REWARD_KEY_NAME: self.numbers.get(REWARD_KEY_NAME),
            **self.fields(),
        }


def key_of(row: Mapping[str, Any]) -> RolloutKey:
    """The identity of a row; an index that is missing counts as 0."""
    return RolloutKey(row.get(TASK_INDEX_KEY_NAME) or 0, row.get(ROLLOUT_INDEX_KEY_NAME) or 0)


def measure(results: Iterable[Mapping[str, Any]]) -> list[Measured]:
    """The numbers of every result, in order of task and rollout; ValueError if two are the same rollout."""
    broken: Counter[str] = Counter()
    measured = [_measure(result, broken) for result in results]
    warn_of_broken(broken)
    require_distinct((one.key for one in measured), "results")
    return sorted(measured, key=lambda one: one.key)


def require_distinct(keys: Iterable[RolloutKey], what: str) -> None:
    repeated = sorted(key for key, count in Counter(keys).items() if count > 1)
    if repeated:
        raise ValueError(
            f"{len(repeated)} (task, rollout) pairs occur more than once among the {what}: {listed(repeated)}\n"
            f"hint: every row needs its own {TASK_INDEX_KEY_NAME!r} and {ROLLOUT_INDEX_KEY_NAME!r}; "
            f"a row without them counts as 0:0"
        )


def listed(keys: Iterable[RolloutKey], shown: int = 10) -> str:
    """`t:r, t:r, …` for a message."""
    ordered = sorted(keys)
    more = f" and {len(ordered) - shown} more" if len(ordered) > shown else ""
    return ", ".join(str(key) for key in ordered[:shown]) + more


def by_task(measured: Iterable[Measured]) -> dict[int, list[Measured]]:
    tasks: dict[int, list[Measured]] = {}
    for one in measured:
        tasks.setdefault(one.key.task, []).append(one)
    return tasks


def _measure(result: Mapping[str, Any], broken: Counter[str]) -> Measured:
    response = result.get(RESPONSE_KEY_NAME)
    usage = response.get("usage") if isinstance(response, Mapping) else None
    return Measured(
        key=key_of(result),
        numbers=_numbers(result, broken),
        usage=_numbers(usage, broken) if isinstance(usage, Mapping) else {},
    )


def _numbers(values: Mapping[str, Any], broken: Counter[str]) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for name, value in values.items():
        if name.startswith(BOOKKEEPING_PREFIX):
            continue
        number = finite(value)
        if number is not None:
            numbers[name] = number
        elif is_broken(value):
            broken[name] += 1
    return numbers
