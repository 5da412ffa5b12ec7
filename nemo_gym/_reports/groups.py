# SPDX-License-Identifier: Apache-2.0
"""The rollouts of each task together: a few numbers per task, in arrays, for any number of tasks."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from nemo_gym._metrics.describe import mean
from nemo_gym._reports.columns import Columns
from nemo_gym._reports.facts import FAILED, SCORED
from nemo_gym._reports.preview import Preview

GROUP_SORTS = ("pass_rate", "task", "reward", "rollouts", "failed")
PASS_REWARD = 1.0
"""A rollout passes from this reward on."""


@dataclass(frozen=True)
class TaskGroup:
    """One task, as one agent played it."""

    task: int
    task_label: str
    agent: str | None
    n_rollouts: int
    n_scored: int
    n_failed: int
    mean_reward: float | None
    min_reward: float | None
    max_reward: float | None
    pass_rate: float | None
    """The share of the scored rollouts with a reward of at least 1."""
    rows: tuple[int, ...]
    """By rollout index."""
    preview: Preview = field(default_factory=Preview)


class Groups:
    """Tasks in order; the rows of a group are a stretch of one array."""

    def __init__(self, rows: "array[int]", starts: "array[int]", order: Sequence[int]) -> None:
        self._rows, self._starts, self._order = rows, starts, order

    def __len__(self) -> int:
        return len(self._order)

    def rows_of(self, place: int) -> "array[int]":
        """The rows of the group at a place in the order."""
        number = self._order[place]
        return self._rows[self._starts[number] : self._starts[number + 1]]

    def group(self, columns: Columns, place: int) -> TaskGroup:
        return describe_group(columns, self.rows_of(place))


def group_rows(columns: Columns, rows: Sequence[int], sort: str = "task", descending: bool = False) -> Groups:
    """Put the rows of a task and an agent together, and the tasks in order."""
    if sort not in GROUP_SORTS:
        raise ValueError(f"tasks cannot be sorted by {sort!r}; known: {', '.join(GROUP_SORTS)}")
    task, agent, rollout = columns.task, columns.agent, columns.rollout
    together = array("I", sorted(rows, key=lambda row: (task[row], agent[row], rollout[row])))
    starts, before = array("I"), None
    for place, row in enumerate(together):
        if (key := (task[row], agent[row])) != before:
            starts.append(place)
            before = key
    starts.append(len(together))
    return Groups(together, starts, _order(columns, together, starts, sort, descending))


def describe_group(columns: Columns, rows: Sequence[int]) -> TaskGroup:
    """The numbers of the rows of one task."""
    first = rows[0]
    rewards = scored_rewards(columns, rows)
    return TaskGroup(
        task=columns.task[first],
        task_label=columns.task_label(first),
        agent=columns.agents[columns.agent[first]] or None,
        n_rollouts=len(rows),
        n_scored=len(rewards),
        n_failed=sum(1 for row in rows if columns.flags[row] & FAILED),
        mean_reward=mean(rewards) if rewards else None,
        min_reward=min(rewards, default=None),
        max_reward=max(rewards, default=None),
        pass_rate=sum(reward >= PASS_REWARD for reward in rewards) / len(rewards) if rewards else None,
        rows=tuple(rows),
    )


def scored_rewards(columns: Columns, rows: Sequence[int]) -> list[float]:
    """The rewards that count: not those of failures."""
    return [columns.reward[row] for row in rows if columns.flags[row] & SCORED]


def _order(columns: Columns, rows: "array[int]", starts: "array[int]", sort: str, descending: bool) -> Sequence[int]:
    numbers = range(len(starts) - 1)
    if sort == "task":
        return numbers[::-1] if descending else numbers
    values = [_value(columns, rows[starts[n] : starts[n + 1]], sort) for n in numbers]
    known = sorted((n for n in numbers if values[n]), key=lambda n: values[n], reverse=descending)
    return array("I", [*known, *(n for n in numbers if not values[n])])


def _value(columns: Columns, rows: "array[int]", sort: str) -> tuple[float, ...]:
    """What a task is ordered by, the next for equal ones; empty where nothing is known."""
    if sort == "rollouts":
        return (len(rows),)
    if sort == "failed":
        return (sum(1 for row in rows if columns.flags[row] & FAILED),)
    rewards = scored_rewards(columns, rows)
    if not rewards:
        return ()
    average = mean(rewards)
    pass_rate = sum(reward >= PASS_REWARD for reward in rewards) / len(rewards)
    return (pass_rate, average) if sort == "pass_rate" else (average,)
