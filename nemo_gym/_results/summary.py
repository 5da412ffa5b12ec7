# SPDX-License-Identifier: Apache-2.0
"""How a run is doing, counted outcome by outcome in a few bytes a task, and how it did, as a table.

Every number says how many rollouts it rests on. Printing is left to the command line.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nemo_gym._metrics.intervals import Interval, interval_of_moments
from nemo_gym._metrics.rollouts import read_usage
from nemo_gym._results.aggregate import AgentAggregate
from nemo_gym._results.metric_rows import metric_rows
from nemo_gym._results.rows import agent_of, reward_of
from nemo_gym._rollouts.compact import TaskCounts, TaskNumbers
from nemo_gym._rollouts.types import Failed, Outcome, Row, Scored
from nemo_gym._util.row_keys import TASK_INDEX_KEY_NAME

_EXAMPLES = 3
_EXAMPLE_LENGTH = 300
HEADING = ["agent", "metric", "value", "95 % interval", "scored"]


class RunningMean:
    """The mean over tasks of their mean rewards, with the interval that the aggregate will have, in constant time.

    Tasks are the units: with every rollout, the mean of its task takes the place of the mean that it had before.
    """

    def __init__(self) -> None:
        self.scored = 0
        self._sums, self._counts = TaskNumbers[float]("d"), TaskCounts()
        self._tasks, self._mean, self._squares = 0, 0.0, 0.0
        self._binary = True

    def add(self, task: int, reward: float) -> None:
        """Count one more rollout of `task`."""
        count, total = self._counts[task], self._sums[task]
        self._counts.add(task, 1)
        self._sums.add(task, reward)
        self.scored += 1
        self._binary = self._binary and reward in (0.0, 1.0)
        new = (total + reward) / (count + 1)
        before = self._mean
        # Welford's updates, for a value that joins and for one that takes the place of another: no difference of two
        # large sums.
        if count == 0:
            self._tasks += 1
            self._mean += (new - before) / self._tasks
            self._squares += (new - before) * (new - self._mean)
        else:
            old = total / count
            self._mean += (new - old) / self._tasks
            self._squares += (new - old) * (new - self._mean + old - before)

    def interval(self) -> Interval:
        """Return the mean and its 95 % interval; at least one rollout was counted."""
        return interval_of_moments(self._tasks, self._mean, max(self._squares, 0.0), binary=self._binary)


@dataclass
class FailureGroup:
    """The failures of one kind."""

    count: int = 0
    examples: list[str] = field(default_factory=list)
    """A few messages, each once."""

    def add(self, message: str) -> None:
        self.count += 1
        example = message[:_EXAMPLE_LENGTH]
        if len(self.examples) < _EXAMPLES and example not in self.examples:
            self.examples.append(example)


@dataclass
class RunSummary:
    """What has become of the rollouts of a run so far."""

    requested: int | None
    """Those of this session; None while the input is still being read."""
    clock: Callable[[], float] = time.monotonic
    scored: int = 0
    failures: dict[str, FailureGroup] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    rewards: dict[str | None, RunningMean] = field(default_factory=dict)
    """The mean reward of each agent."""
    ended: int = 0
    """Rollouts that ended in this session, in whatever way."""

    def __post_init__(self) -> None:
        self.ended_s: float | None = None
        self.begin()

    def begin(self) -> None:
        """Start the clock, again if it runs already: the first rollout is about to be played."""
        self.started_s = self.clock()

    def add(self, outcome: Outcome) -> None:
        """Count a rollout that has ended; one that was cancelled has not."""
        if isinstance(outcome, Failed) and outcome.failure.kind == "cancelled":
            return
        self.ended += 1
        if isinstance(outcome, Scored):
            self.add_earlier(outcome.result)  # which has the keys of the row in it
        else:
            self.failures.setdefault(outcome.failure.kind, FailureGroup()).add(outcome.failure.message)

    def add_earlier(self, result: Row) -> None:
        """Count a result that an earlier session of the run has recorded; it says nothing about the pace."""
        reward = reward_of(result)
        if reward is None:
            return
        self.scored += 1
        agent = agent_of(result)
        mean = self.rewards.get(agent) or self.rewards.setdefault(agent, RunningMean())
        mean.add(result.get(TASK_INDEX_KEY_NAME) or 0, reward)
        usage = read_usage(result)
        self.input_tokens += _count(usage.get("input_tokens"))
        self.output_tokens += _count(usage.get("output_tokens"))

    def finish(self) -> None:
        """Stop the clock: the run is over."""
        self.ended_s = self.clock()

    @property
    def failed(self) -> int:
        return sum(group.count for group in self.failures.values())

    @property
    def wall_time_s(self) -> float:
        return (self.clock() if self.ended_s is None else self.ended_s) - self.started_s

    @property
    def rate_per_s(self) -> float | None:
        """Rollouts that end in a second, over this session."""
        return self.ended / self.wall_time_s if self.ended and self.wall_time_s > 0 else None

    @property
    def eta_s(self) -> float | None:
        """How long what is left takes at this rate."""
        rate = self.rate_per_s
        if rate is None or self.requested is None:
            return None
        return max(self.requested - self.ended, 0) / rate

    def failure_table(self) -> list[list[str]]:
        """Return a row per kind of failure, the commonest first; the first row is the heading."""
        by_count = sorted(self.failures.items(), key=lambda item: (-item[1].count, item[0]))
        rows = [[kind, str(group.count), group.examples[0]] for kind, group in by_count]
        return [["failure", "rollouts", "for example"], *rows] if rows else []


def table(aggregates: Sequence[AgentAggregate]) -> list[list[str]]:
    """Return the numbers of a run worth printing; the first row is the heading."""
    rows = [HEADING]
    for aggregate in aggregates:
        name = aggregate.agent or "(no agent)"
        rows += [
            [name, row.name, row.text, row.interval_text, row.scored_text] for row in metric_rows(aggregate.head())
        ]
    return rows


def _count(tokens: object) -> int:
    return int(tokens) if isinstance(tokens, (int, float)) else 0
