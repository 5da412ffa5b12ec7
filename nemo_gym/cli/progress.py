# SPDX-License-Identifier: Apache-2.0
"""How a run is doing: a live display on a terminal, one plain line now and then elsewhere."""

import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.types import Outcome, Scored
from nemo_gym.cli import render

_LINE_EVERY_S = 10.0
_REDRAWS_PER_S = 4


class Progress:
    """What has become of the rollouts of one invocation."""

    def __init__(self, total: int, limiter: Limiter) -> None:
        self._total, self._limiter = total, limiter
        self._started = time.monotonic()
        self._scored, self._sum, self._squares = 0, 0.0, 0.0
        self._failed = Counter[str]()
        self._tokens_in = self._tokens_out = 0

    def note(self, outcome: Outcome) -> None:
        """Count one outcome."""
        if not isinstance(outcome, Scored):
            self._failed[outcome.failure.kind] += 1
            return
        reward = float(outcome.result["reward"])
        self._scored += 1
        self._sum += reward
        self._squares += reward * reward
        usage = (outcome.result.get("response") or {}).get("usage") or {}
        self._tokens_in += usage.get("input_tokens") or 0
        self._tokens_out += usage.get("output_tokens") or 0

    @property
    def done(self) -> int:
        return self._scored + self._failed.total()

    def line(self) -> str:
        """All of it in one line."""
        elapsed_s = max(time.monotonic() - self._started, 1e-9)
        rate = self.done / elapsed_s
        left_s = (self._total - self.done) / rate if rate else math.inf
        parts = [
            f"{self.done}/{self._total} rollouts",
            f"{rate:.1f}/s",
            f"{self._limiter.in_flight} in flight",
            f"{_duration(left_s)} left" if self.done < self._total else f"{_duration(elapsed_s)}",
        ]
        if self._scored:
            parts.append(f"reward {self._mean:.3f} ± {self._stderr:.3f} (n={self._scored})")
        if self._failed:
            parts.append("failed " + ", ".join(f"{kind} {count}" for kind, count in self._failed.most_common()))
        if self._tokens_out:
            parts.append(f"{self._tokens_in:,} tokens in, {self._tokens_out:,} out")
        return " | ".join(parts)

    @property
    def _mean(self) -> float:
        return self._sum / self._scored

    @property
    def _stderr(self) -> float:
        if self._scored < 2:
            return 0.0
        variance = max(0.0, self._squares - self._scored * self._mean**2) / (self._scored - 1)
        return math.sqrt(variance / self._scored)


def _duration(seconds: float) -> str:
    if math.isinf(seconds):
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


class Display:
    """Shows a progress now and then; `tick` is cheap to call for every outcome."""

    def __init__(self, progress: Progress, *, live: bool) -> None:
        self._progress, self._live = progress, live
        self._every_s = 1 / _REDRAWS_PER_S if live else _LINE_EVERY_S
        self._shown = time.monotonic()

    def tick(self, outcome: Outcome) -> None:
        """Count an outcome and show the progress if it is time to."""
        self._progress.note(outcome)
        now = time.monotonic()
        if now - self._shown >= self._every_s:
            self._shown = now
            render.status_line(self._progress.line(), live=self._live)


@contextmanager
def shown(progress: Progress, *, quiet: bool) -> Iterator[Display]:
    """A display of `progress`, with a last line when it ends."""
    live = sys.stderr.isatty() and not quiet
    display = Display(progress, live=live)
    if quiet:
        display._every_s = math.inf
    try:
        yield display
    finally:
        if not quiet:
            render.status_line(progress.line(), live=live, last=True)
