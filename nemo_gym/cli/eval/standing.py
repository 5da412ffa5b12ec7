# SPDX-License-Identifier: Apache-2.0
"""How a run stands, in words short enough for one line: what every way of showing progress is made of."""

from nemo_gym._results.metric_rows import number_text
from nemo_gym._results.summary import RunningMean, RunSummary
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._transport.retries import RETRIES

_AGENTS_SHOWN = 3


class Standing:
    """How a run stands, in words: counted by whoever plays it, read by whoever shows it."""

    def __init__(self, summary: RunSummary, limiter: Limiter, before: int = 0) -> None:
        """`before`: rollouts that earlier sessions of the run have dealt with."""
        self.summary, self._limiter, self._before = summary, limiter, before

    @property
    def is_over(self) -> bool:
        return self.summary.ended_s is not None

    @property
    def done(self) -> int:
        """Rollouts that have ended, in this session or before."""
        return self._before + self.summary.ended

    @property
    def total(self) -> int | None:
        requested = self.summary.requested
        return None if requested is None else self._before + requested

    @property
    def count(self) -> str:
        total = "?" if self.total is None else f"{self.total:,}"
        earlier = f" ({self._before:,} before)" if self._before else ""
        return f"{self.done:,}/{total} rollouts{earlier}"

    @property
    def pace(self) -> list[str]:
        """How fast, and how long still; in the end, how long it took."""
        rate = self.summary.rate_per_s
        speed = ["-/s" if rate is None else f"{rate:,.1f}/s"]
        if self.is_over:
            return [f"in {_format_duration(self.summary.wall_time_s)}", *speed]
        return [*speed, f"{_format_duration(self.summary.eta_s)} left", f"{self._limiter.in_flight:,} in flight"]

    @property
    def reward(self) -> str | None:
        """The mean reward with the interval that the table at the end has."""
        # Copied in one step: another thread may be adding an agent.
        means = sorted([*self.summary.rewards.items()], key=lambda item: item[0] or "")
        if not means:
            return None
        first = [f"{_describe(mean)}{f' {agent}' if len(means) > 1 else ''}" for agent, mean in means[:_AGENTS_SHOWN]]
        more = f", and {len(means) - _AGENTS_SHOWN} more agents" if len(means) > _AGENTS_SHOWN else ""
        return f"reward {', '.join(first)}{more}"

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
        causes = RETRIES.under_way()
        if self.is_over or not causes:
            return None
        each = next(iter(causes)) if len(causes) == 1 else ", ".join(f"{cause} {n:,}" for cause, n in causes.items())
        return f"{sum(causes.values()):,} retrying ({each})"

    @property
    def tokens(self) -> str | None:
        if not (self.summary.input_tokens or self.summary.output_tokens):
            return None
        return (
            f"tokens {_shorten_count(self.summary.input_tokens)} in, {_shorten_count(self.summary.output_tokens)} out"
        )

    def line(self) -> str:
        """All of it in one line."""
        parts = [self.count, *self.pace, self.reward, self.retrying, self.failures, self.tokens]
        return " | ".join(part for part in parts if part)


def _describe(mean: RunningMean) -> str:
    interval = mean.interval()
    if interval.low is None or interval.high is None:
        return f"{number_text(interval.estimate)} (n={mean.scored:,})"
    bounds = f"{number_text(interval.low)} … {number_text(interval.high)}"
    return f"{number_text(interval.estimate)} ({bounds}, n={mean.scored:,})"


def _format_duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _shorten_count(count: int) -> str:
    """1,234 as 1.23k: enough digits to see it grow."""
    for size, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}" if count < 999.5 * size else f"{count / size:.0f}{letter}"
    return str(count)
