# SPDX-License-Identifier: Apache-2.0
"""How a run is doing: one line that is drawn anew on a terminal, and printed now and then elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nemo_gym._results.summary import RunSummary
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.types import Outcome
from nemo_gym.cli import render

_LINE_EVERY_S = 10.0
_REDRAWS_PER_S = 4


@contextmanager
def shown(summary: RunSummary, limiter: Limiter, *, quiet: bool) -> Iterator[Callable[[Outcome], None]]:
    """Count outcomes into `summary` and show how it stands, unless `quiet`; the last line when it ends."""
    live = sys.stderr.isatty()
    every_s = math.inf if quiet else 1 / _REDRAWS_PER_S if live else _LINE_EVERY_S
    last_shown = time.monotonic()

    def count(outcome: Outcome) -> None:
        nonlocal last_shown
        summary.add(outcome)
        now = time.monotonic()
        if now - last_shown >= every_s:
            last_shown = now
            render.status_line(line(summary, limiter), live=live)

    try:
        yield count
    finally:
        summary.finish()
        if not quiet:
            render.status_line(line(summary, limiter), live=live, last=True)


def line(summary: RunSummary, limiter: Limiter) -> str:
    """All of it in one line."""
    parts = [
        f"{summary.ended}/{summary.requested} rollouts",
        f"{summary.rate_per_s or 0:.1f}/s",
        f"{limiter.in_flight} in flight",
        f"{_duration(summary.eta_s)} left" if summary.ended_s is None else _duration(summary.wall_time_s),
    ]
    if summary.mean_reward is not None:
        parts.append(f"reward {summary.mean_reward:.3f} ± {summary.stderr or 0:.3f} (n={summary.scored})")
    if summary.failures:
        kinds = sorted(summary.failures.items(), key=lambda item: -item[1].count)
        parts.append("failed " + ", ".join(f"{kind} {group.count}" for kind, group in kinds))
    if summary.output_tokens:
        parts.append(f"{summary.input_tokens:,} tokens in, {summary.output_tokens:,} out")
    return " | ".join(parts)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
