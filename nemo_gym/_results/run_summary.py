# SPDX-License-Identifier: Apache-2.0
"""Summarize a run while it lasts: count its outcomes in a few bytes per task, and describe them in one line."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from nemo_gym._results.metrics.describe import format_number, to_finite
from nemo_gym._results.metrics.intervals import Interval, compute_interval_of_moments
from nemo_gym._results.metrics.rollout_metrics import read_usage
from nemo_gym._results.result_rows import read_agent_name, read_reward
from nemo_gym._rollouts.compact import TaskCounts, TaskNumbers
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.outcomes import Failed, Outcome, Row, Scored
from nemo_gym._transport.retries import RetryCounts
from nemo_gym._util.row_keys import TASK_INDEX_KEY_NAME

_EXAMPLES = 3
_EXAMPLE_LENGTH = 300


class RunningMean:
    """The mean reward over rollouts, with the interval that the aggregate will have, in constant time.

    Tasks are the units of the interval: it follows from the sums over tasks of the squares and products of their number
    of rollouts and their total reward.
    """

    def __init__(self) -> None:
        self.scored = 0
        self._sums = TaskNumbers[float]("d")
        self._counts = TaskCounts()
        self._tasks = 0
        self._first = 0.0
        self._total = 0.0
        self._sum_squares = 0.0
        self._products = 0.0
        self._count_squares = 0
        self._binary = True

    def add(self, task: int, reward: float) -> None:
        """Count one more rollout of `task`."""
        if self.scored == 0:
            self._first = reward
        # Relative to the first reward: no difference of two large sums.
        value = reward - self._first
        count = self._counts[task]
        total = self._sums[task]
        self._counts.add(task, 1)
        self._sums.add(task, value)
        self.scored += 1
        self._tasks += count == 0
        self._binary = self._binary and reward in (0.0, 1.0)
        self._total += value
        self._sum_squares += value * (2 * total + value)
        self._products += total + value * (count + 1)
        self._count_squares += 2 * count + 1

    def interval(self) -> Interval:
        """Return the mean and its 95 % interval; at least one rollout was counted."""
        mean = self._total / self.scored
        squares = self._sum_squares - 2 * mean * self._products + mean * mean * self._count_squares
        squares *= (self._tasks / self.scored) ** 2
        estimate = self._first + mean
        return compute_interval_of_moments(self._tasks, estimate, max(squares, 0.0), binary=self._binary)


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
    """The outcomes of a run so far."""

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
        """Start the clock, or restart it, before the first rollout."""
        self.started_s = self.clock()

    def add(self, outcome: Outcome) -> None:
        """Count a rollout that has ended; a canceled one has not."""
        if isinstance(outcome, Failed) and outcome.failure.kind == "cancelled":
            return
        self.ended += 1
        if isinstance(outcome, Scored):
            self.add_earlier(outcome.result)  # which has the keys of the row in it
        else:
            self.failures.setdefault(outcome.failure.kind, FailureGroup()).add(outcome.failure.message)

    def add_earlier(self, result: Row) -> None:
        """Count a result that an earlier session of the run recorded, which does not affect the pace."""
        reward = read_reward(result)
        if reward is None:
            return
        self.scored += 1
        agent = read_agent_name(result)
        mean = self.rewards.get(agent) or self.rewards.setdefault(agent, RunningMean())
        mean.add(result.get(TASK_INDEX_KEY_NAME) or 0, reward)
        usage = read_usage(result)
        self.input_tokens += int(to_finite(usage.get("input_tokens")) or 0)
        self.output_tokens += int(to_finite(usage.get("output_tokens")) or 0)

    def finish(self) -> None:
        """Stop the clock: the run is over."""
        self.ended_s = self.clock()

    @property
    def failed(self) -> int:
        return sum(group.count for group in self.failures.values())

    @property
    def wall_time_s(self) -> float:
        if self.ended_s is None:
            return self.clock() - self.started_s
        return self.ended_s - self.started_s

    @property
    def rate_per_s(self) -> float | None:
        """Rollouts that end per second, over this session."""
        if not self.ended or self.wall_time_s <= 0:
            return None
        return self.ended / self.wall_time_s

    @property
    def eta_s(self) -> float | None:
        """How long the rest takes at this rate."""
        rate = self.rate_per_s
        if rate is None or self.requested is None:
            return None
        return max(self.requested - self.ended, 0) / rate

    def failure_table(self) -> list[list[str]]:
        """Return a heading and a row per kind of failure, the most common first."""
        by_count = sorted(self.failures.items(), key=lambda item: (-item[1].count, item[0]))
        if not by_count:
            return []
        rows = [[kind, str(group.count), group.examples[0]] for kind, group in by_count]
        return [["failure", "rollouts", "for example"], *rows]


_AGENTS_SHOWN = 3


class Standing:
    """How a run stands, in words, for a progress display."""

    def __init__(self, summary: RunSummary, limiter: Limiter, retries: RetryCounts, before: int = 0) -> None:
        """`retries`: the calls that wait to be retried. `before`: rollouts that earlier sessions have handled."""
        self.summary = summary
        self._limiter = limiter
        self._retries = retries
        self._before = before

    @property
    def is_over(self) -> bool:
        return self.summary.ended_s is not None

    @property
    def done(self) -> int:
        """Rollouts that have ended, in this session or before."""
        return self._before + self.summary.ended

    @property
    def total(self) -> int | None:
        if self.summary.requested is None:
            return None
        return self._before + self.summary.requested

    @property
    def count(self) -> str:
        total = "?" if self.total is None else f"{self.total:,}"
        earlier = f" ({self._before:,} before)" if self._before else ""
        return f"{self.done:,}/{total} rollouts{earlier}"

    @property
    def pace(self) -> list[str]:
        """The speed and the time left; in the end, the time taken."""
        rate = self.summary.rate_per_s
        speed = ["-/s" if rate is None else f"{rate:,.1f}/s"]
        if self.is_over:
            return [f"in {_format_duration(self.summary.wall_time_s)}", *speed]
        return [*speed, f"{_format_duration(self.summary.eta_s)} left", f"{self._limiter.in_flight:,} in flight"]

    @property
    def reward(self) -> str | None:
        """The mean reward with its interval, the same as in the final table."""
        # Copied in one step: another thread may be adding an agent.
        means = sorted([*self.summary.rewards.items()], key=lambda item: item[0] or "")
        if not means:
            return None
        if len(means) == 1:
            return f"reward {_describe_mean(means[0][1])}"
        rewards = ", ".join(f"{_describe_mean(mean)} {agent}" for agent, mean in means[:_AGENTS_SHOWN])
        if len(means) > _AGENTS_SHOWN:
            rewards += f", and {len(means) - _AGENTS_SHOWN} more agents"
        return f"reward {rewards}"

    @property
    def failures(self) -> str | None:
        # Copied in one step: another thread may be adding a kind.
        kinds = sorted([*self.summary.failures.items()], key=lambda item: (-item[1].count, item[0]))
        if not kinds:
            return None
        counted = ", ".join(f"{kind} {group.count:,}" for kind, group in kinds)
        return f"{sum(group.count for _, group in kinds):,} failed: {counted}"

    @property
    def retrying(self) -> str | None:
        """How many calls wait for another attempt, and why."""
        causes = self._retries.under_way()
        if self.is_over or not causes:
            return None
        each = ", ".join(f"{cause} {n:,}" for cause, n in causes.items())
        if len(causes) == 1:
            [each] = causes
        return f"{sum(causes.values()):,} retrying ({each})"

    @property
    def tokens(self) -> str | None:
        if not (self.summary.input_tokens or self.summary.output_tokens):
            return None
        return (
            f"tokens {_shorten_count(self.summary.input_tokens)} in, {_shorten_count(self.summary.output_tokens)} out"
        )

    def line(self) -> str:
        """Return everything in one line."""
        parts = [self.count, *self.pace, self.reward, self.retrying, self.failures, self.tokens]
        return " | ".join(part for part in parts if part)


def _describe_mean(mean: RunningMean) -> str:
    interval = mean.interval()
    if interval.low is None or interval.high is None:
        return f"{format_number(interval.estimate)} (n={mean.scored:,})"
    bounds = f"{format_number(interval.low)} … {format_number(interval.high)}"
    return f"{format_number(interval.estimate)} ({bounds}, n={mean.scored:,})"


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    if minutes:
        return f"{minutes}m{rest:02}s"
    return f"{rest}s"


def _shorten_count(count: int) -> str:
    """Format 1,234 as 1.23k, with enough digits to see it grow."""
    for size, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}" if count < 999.5 * size else f"{count / size:.0f}{letter}"
    return str(count)
