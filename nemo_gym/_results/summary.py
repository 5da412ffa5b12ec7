# SPDX-License-Identifier: Apache-2.0
"""How a run is doing, counted outcome by outcome in constant memory, and how it did, as JSON and as a table.

Every number says how many rollouts it rests on. Printing is left to the command line.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_gym._results.aggregate import AgentAggregate
from nemo_gym._results.curves import MEAN_REWARD
from nemo_gym._results.metric_rows import metric_rows, number_text
from nemo_gym._results.rows import count_of, reward_of, usage_of
from nemo_gym._rollouts.types import Outcome, Row, Scored

SCHEMA = 1
_EXAMPLES = 3
_EXAMPLE_LENGTH = 300
HEADING = ["agent", "metric", "value", "95 % interval", "scored"]


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
    """None while the input is still being read."""
    clock: Callable[[], float] = time.monotonic
    scored: int = 0
    failures: dict[str, FailureGroup] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    mean_reward: float | None = None
    ended: int = 0
    """Rollouts that ended in this session, in whatever way."""
    _squares: float = 0.0

    def __post_init__(self) -> None:
        self.started_s = self.clock()
        self.ended_s: float | None = None

    def add(self, outcome: Outcome) -> None:
        """Count a rollout that has ended."""
        self.ended += 1
        if isinstance(outcome, Scored):
            self.add_earlier(outcome.result)
        else:
            self.failures.setdefault(outcome.failure.kind, FailureGroup()).add(outcome.failure.message)

    def add_earlier(self, result: Row) -> None:
        """Count a result that an earlier session of the run has recorded; it says nothing about the pace."""
        reward = reward_of(result)
        if reward is None:
            return
        self.scored += 1
        # Welford's update: one pass, and no difference of two large sums.
        before = 0.0 if self.mean_reward is None else self.mean_reward
        self.mean_reward = before + (reward - before) / self.scored
        self._squares += (reward - before) * (reward - self.mean_reward)
        usage = usage_of(result)
        self.input_tokens += _count(usage.get("input_tokens"))
        self.output_tokens += _count(usage.get("output_tokens"))

    def finish(self) -> None:
        """The run is over: time stands still."""
        self.ended_s = self.clock()

    @property
    def failed(self) -> int:
        return sum(group.count for group in self.failures.values())

    @property
    def stderr(self) -> float | None:
        """The standard error of the mean reward as if rollouts were independent; the aggregate knows better."""
        return math.sqrt(self._squares / (self.scored - 1) / self.scored) if self.scored > 1 else None

    @property
    def wall_time_s(self) -> float:
        return (self.clock() if self.ended_s is None else self.ended_s) - self.started_s

    @property
    def rate_per_s(self) -> float | None:
        """Rollouts that end in a second, over this session."""
        return self.ended / self.wall_time_s if self.ended and self.wall_time_s > 0 else None

    @property
    def eta_s(self) -> float | None:
        """What is left takes so long at this rate."""
        rate = self.rate_per_s
        if rate is None or self.requested is None:
            return None
        return max(self.requested - self.scored - self.failed, 0) / rate

    def as_json(self) -> dict[str, Any]:
        failed = {kind: {"count": group.count, "examples": group.examples} for kind, group in self._by_count()}
        return {
            "schema": SCHEMA,
            "n_requested": self.requested,
            "n_scored": self.scored,
            "n_failed": self.failed,
            "failed": failed,
            "mean_reward": self.mean_reward,
            "mean_reward_stderr": self.stderr,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "wall_time_s": self.wall_time_s,
            "rollouts_per_s": self.rate_per_s,
        }

    def failure_table(self) -> list[list[str]]:
        """A row per kind of failure, the commonest first; the first row is the heading."""
        rows = [[kind, str(group.count), group.examples[0]] for kind, group in self._by_count()]
        return [["failure", "rollouts", "for example"], *rows] if rows else []

    def _by_count(self) -> list[tuple[str, FailureGroup]]:
        return sorted(self.failures.items(), key=lambda item: (-item[1].count, item[0]))


def table(summary: RunSummary | None, aggregates: Sequence[AgentAggregate]) -> list[list[str]]:
    """The numbers of a run worth printing; the first row is the heading."""
    rows = [HEADING]
    for aggregate in aggregates:
        name = aggregate.agent or "(no agent)"
        rows += [
            [name, row.name, row.text, row.interval_text, row.scored_text] for row in metric_rows(aggregate.head())
        ]
    if summary is not None and not aggregates:
        rows.append(_summary_row(summary))
    return rows


def _summary_row(summary: RunSummary) -> list[str]:
    value = "none" if summary.mean_reward is None else number_text(summary.mean_reward)
    spread = "" if summary.stderr is None else f"± {number_text(summary.stderr)} (standard error)"
    return ["all", MEAN_REWARD, value, spread, count_of(summary.scored, summary.requested)]


def _count(tokens: object) -> int:
    return int(tokens) if isinstance(tokens, (int, float)) else 0
