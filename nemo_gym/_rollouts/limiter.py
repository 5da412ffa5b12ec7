# SPDX-License-Identifier: Apache-2.0
"""How many rollouts may run at once: a fixed number, or one found by watching how the endpoint copes.

Limits only count and decide; they never wait and start nothing.
"""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nemo_gym._rollouts.outcomes import Failed, Outcome, Scored
from nemo_gym._servers.policy_versions.staleness import StalenessGate
from nemo_gym._transport.failures import Failure

_OVERLOAD = re.compile(r"\banswered (?:429|503|504|529)\b|rate.?limit|too many requests|\boverloaded\b", re.IGNORECASE)
# Latency caused by load falls about as much as the load does.
_CLEARLY_LOWER = 0.6
_CLEARLY_FASTER = 0.8


class Limiter(Protocol):
    """Decides whether rollouts may start."""

    @property
    def limit(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def most_in_flight(self) -> int: ...

    def acquire(self) -> bool:
        """Return whether one more may start now; if so, count it as running."""

    def release(self, outcome: Outcome, latency_s: float) -> None:
        """Note that a rollout ended, after `latency_s` seconds."""

    def note_retry(self, failure: Failure) -> None:
        """Note that a running rollout failed in this way and is retried."""


def is_overload(failure: Failure) -> bool:
    """Return whether `failure` means that too many ran at once: a missed deadline, or an explicit message."""
    return failure.kind == "timeout" or (failure.retryable and _OVERLOAD.search(failure.message) is not None)


class FixedLimit:
    """A constant limit."""

    def __init__(self, limit: int) -> None:
        assert limit >= 1, f"at least one rollout must be allowed to run, not {limit}"
        self.limit = limit
        self.in_flight = self.most_in_flight = 0

    def acquire(self) -> bool:
        if self.in_flight >= self.limit:
            return False
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return True

    def release(self, outcome: Outcome, latency_s: float) -> None:
        self.in_flight -= 1

    def note_retry(self, failure: Failure) -> None:
        """Change nothing."""


@dataclass(frozen=True)
class AdaptiveSettings:
    """How an adaptive limit moves. Latency means the median over rollouts scored on the first attempt."""

    start: int = 32
    maximum: int = 1024
    latency_factor: float = 3.0
    """Latency is acceptable while it is at most this many times the best one seen. An inference server that batches
    slows every request down long before its throughput stops growing."""
    fast_enough_s: float = 1.0
    """A latency below this is always acceptable."""
    leave_fast_growth_at: float = 0.1
    """The share of overload in a round that ends doubling for good."""
    unseen_every_s: float = 1.0
    """While nothing has ended yet, the limit doubles this often…"""
    unseen_maximum: int = 256
    """…up to this."""
    round_minimum: int = 8
    """A round lasts until as many rollouts have ended as the limit allows, but at least this many."""


class _Strain(NamedTuple):
    """Where latency first became unacceptable."""

    limit: float
    median_s: float


class AdaptiveLimit:
    """Doubles each round until the endpoint shows strain, then grows by a square root and backs off in proportion.

    A round in which every rollout was refused halves the limit; one in which a few were lowers it by that share, so
    that faults unrelated to load do not starve a run. If less load does not bring latency down, the tasks are longer,
    and the longer latency becomes the baseline.
    """

    def __init__(
        self, settings: AdaptiveSettings | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings or AdaptiveSettings()
        self._clock = clock
        assert self._settings.start >= 1, "at least one rollout must be allowed to run"
        self._exact = float(min(self._settings.start, self._settings.maximum))
        self.limit = int(self._exact)
        self.in_flight = self.most_in_flight = 0
        self._doubling = True
        self._best_s: float | None = None
        self._strained_at: _Strain | None = None
        self._lowered_at = -math.inf
        self._unseen_since: float | None = self._clock()
        self._begin_round()

    def acquire(self) -> bool:
        if self.in_flight >= self.limit:
            self._was_full = True
            if self._unseen_since is None or not self._grow_without_results(self._unseen_since):
                return False
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return True

    def release(self, outcome: Outcome, latency_s: float) -> None:
        self.in_flight -= 1
        # A rollout that began under a higher limit says nothing about this one.
        if self._clock() - latency_s < self._lowered_at:
            return
        if isinstance(outcome, Scored):
            self._scored += 1
            if outcome.attempts == 1:  # otherwise the latency includes pauses between attempts
                self._latencies_s.append(latency_s)
            self._count(overloaded=False)
        elif outcome.failure.kind != "cancelled":
            self._count(overloaded=is_overload(outcome.failure))

    def note_retry(self, failure: Failure) -> None:
        self._count(overloaded=is_overload(failure))

    def _count(self, *, overloaded: bool) -> None:
        self._unseen_since = None
        self._ended += 1
        self._overloaded += overloaded
        if self._ended >= self._round_size:
            self._set(self._judge_round())
            self._begin_round()

    def _begin_round(self) -> None:
        self._round_size = max(self._settings.round_minimum, self.limit)
        self._ended = self._scored = self._overloaded = 0
        self._was_full = False
        self._latencies_s = list[float]()

    def _judge_round(self) -> float:
        """Return the limit that this round suggests."""
        overload_share = self._overloaded / self._ended
        slowdown = self._measure_slowdown()
        if overload_share > self._settings.leave_fast_growth_at or slowdown > 1.0:
            self._doubling = False
        kept = self._exact * max(0.5, (1.0 - overload_share) / slowdown)
        if slowdown > 1.0 or not self._was_full or not self._scored:
            return kept
        if self._doubling:
            return 2 * kept
        return kept + math.sqrt(self._exact)

    def _measure_slowdown(self) -> float:
        """Return by how much latency exceeds what is acceptable; 1 if it does not, or is unknown."""
        if not self._latencies_s:
            return 1.0
        median_s = sorted(self._latencies_s)[len(self._latencies_s) // 2]
        if self._best_s is None or median_s < self._best_s or self._is_unrelated_to_load(median_s):
            self._best_s = median_s
        slowdown = median_s / max(self._best_s * self._settings.latency_factor, self._settings.fast_enough_s)
        if slowdown <= 1.0:
            self._strained_at = None
        elif self._strained_at is None:
            self._strained_at = _Strain(self._exact, median_s)
        return max(1.0, slowdown)

    def _is_unrelated_to_load(self, median_s: float) -> bool:
        """Return whether latency stayed high although the limit was lowered because of it."""
        before = self._strained_at
        if before is None or self._exact > before.limit * _CLEARLY_LOWER:
            return False
        self._strained_at = None
        return median_s > before.median_s * _CLEARLY_FASTER

    def _grow_without_results(self, since: float) -> bool:
        """Grow if nothing is known yet, and return whether it did: slow rollouts must not hold a run at its start."""
        now = self._clock()
        bound = min(self._settings.unseen_maximum, self._settings.maximum)
        if now - since < self._settings.unseen_every_s or self.limit >= bound:
            return False
        self._unseen_since = now
        self._set(min(self._exact * 2.0, float(bound)))
        self._begin_round()
        return True

    def _set(self, exact: float) -> None:
        exact = min(max(exact, 1.0), float(self._settings.maximum))
        if exact < self._exact:
            self._lowered_at = self._clock()
        self._exact = exact
        self.limit = int(exact)


class StalenessLimit:
    """A limit for runs: as many at once as another limit allows, and no more in total than a gate admits."""

    def __init__(
        self,
        inner: Limiter,
        gate: StalenessGate,
        *,
        timeout_s: float,
        give_up: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`give_up` is called with the reason if nothing ran and nothing could begin for `timeout_s`."""
        self._inner = inner
        self._gate = gate
        self._timeout_s = timeout_s
        self._give_up = give_up
        self._clock = clock
        self._held_since: float | None = None

    @property
    def limit(self) -> int:
        return self._inner.limit

    @property
    def in_flight(self) -> int:
        return self._inner.in_flight

    @property
    def most_in_flight(self) -> int:
        return self._inner.most_in_flight

    def acquire(self) -> bool:
        if not self._gate.try_admit():
            self._note_held()
            return False
        self._held_since = None
        if self._inner.acquire():
            return True
        self._gate.give_back()
        return False

    def release(self, outcome: Outcome, latency_s: float) -> None:
        self._inner.release(outcome, latency_s)
        if isinstance(outcome, Failed):
            self._gate.give_back()

    def note_retry(self, failure: Failure) -> None:
        self._inner.note_retry(failure)

    def _note_held(self) -> None:
        if self._inner.in_flight:
            self._held_since = None
            return
        now = self._clock()
        if self._held_since is None:
            self._held_since = now
        elif now - self._held_since >= self._timeout_s:
            self._give_up(self._gate.explain_wait(now - self._held_since))
