# SPDX-License-Identifier: Apache-2.0
"""The retry table: what is retried, how often, and after which pause. Whoever is waiting is counted here meanwhile.

    what failed                             tried again by        attempts    pauses
    a connection that was never made        `http.send`           6           0.1 to 4 s
      … while servers start                                       40
    a connection that broke, repeatable     `http.send`           3           0.1 to 4 s
    a model's endpoint, busy or away        `openai_utils`        6           Retry-After, else 1 to 60 s
      … that answers 500                                          3
    a rollout, by the kind of its failure   `_rollouts`           2 or 3      Retry-After, else 0.1 to 4 s

An error status of any other server is an answer, and never a reason to call it again.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_PAUSE_S = 60.0
_SHORTEST_PAUSE_S = 0.1


@dataclass(frozen=True)
class RetryRule:
    """How many attempts there are in total, and the pauses in between."""

    attempts: int
    first_pause_s: float
    longest_pause_s: float = LONGEST_PAUSE_S

    def draw_pause_s(self, attempt: int, rng: random.Random) -> float:
        """Draw the pause after failed attempt number `attempt` (from 1): doubling up to a bound, and spread out.

        At least half of the full pause, so that it does grow; random above that, so that callers that failed together
        do not come back together.
        """
        doublings = min(attempt - 1, 32)
        return min(self.longest_pause_s, self.first_pause_s * float(2**doublings)) * rng.uniform(0.5, 1.0)


# --- calls ------------------------------------------------------------------------------------------------------------

REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods that may be sent again even if they may have run; others only if their caller says so."""


REPEATABLE_ATTEMPTS = 3


@dataclass(frozen=True)
class RetryPolicy:
    """`unsent` bounds attempts that never reached the server, `repeatable` those that may have."""

    unsent: int = 6
    repeatable: int = REPEATABLE_ATTEMPTS
    first_pause_s: float = 0.1
    longest_pause_s: float = 4.0


WHILE_STARTING = RetryPolicy(unsent=40)
"""For calls between servers that are starting up together: about two minutes."""


def choose_policy(max_retries: int | None, *, is_starting: bool) -> RetryPolicy:
    """Return the policy of a call whose caller may allow at most `max_retries` further attempts."""
    if max_retries is not None:
        return RetryPolicy(unsent=max_retries + 1, repeatable=max_retries + 1)
    return WHILE_STARTING if is_starting else RetryPolicy()


# --- model endpoints --------------------------------------------------------------------------------------------------

BUSY_ENDPOINT_STATUSES = (429, 502, 503, 504, 520)
BROKEN_ENDPOINT_STATUS = 500
ENDPOINT_ATTEMPTS = 6
BROKEN_ENDPOINT_ATTEMPTS = 3
ENDPOINT_FIRST_PAUSE_S = 1.0

# --- rollouts ---------------------------------------------------------------------------------------------------------

NOT_NOW_STATUSES = frozenset({408, 409, 425, 429})
"""Statuses of a call in a rollout for which another attempt may succeed."""
NOT_NOW_RUN_STATUSES = NOT_NOW_STATUSES | {502, 503, 504}
"""The same for an agent that says nothing else about its failure."""


@dataclass(frozen=True)
class RetryRules:
    """The rules by kind of failure. A failure that is not retryable is never retried, whatever its kind."""

    other: RetryRule = RetryRule(3, 0.5)
    by_kind: Mapping[str, RetryRule] = field(
        default_factory=lambda: {
            "model_endpoint": RetryRule(3, 1.0),
            # Nothing is overloaded: another sample may succeed at once.
            "model_reply_invalid": RetryRule(3, 0.1),
            # Each attempt costs a whole deadline.
            "timeout": RetryRule(2, 1.0),
        }
    )

    def rule(self, kind: str) -> RetryRule:
        """Return what applies to failures of `kind`."""
        return self.by_kind.get(kind, self.other)


# --- Retry-After ------------------------------------------------------------------------------------------------------


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the pause in `Retry-After` (seconds or a date), bounded; None if it asks for none."""
    value = next((headers[name] for name in headers if name.lower() == "retry-after"), None)
    if value is None:
        return None
    wanted_s = _parse_seconds(value.strip(), now)
    if wanted_s is None:
        return None
    return bound_pause(wanted_s)


def bound_pause(wanted_s: float) -> float | None:
    """Return the bounded pause for a requested one; None if no pause is requested, such as 0 or a time in the past.

    An overloaded server that says "at once" would be called in a tight loop.
    """
    if wanted_s < _SHORTEST_PAUSE_S:
        return None
    return min(wanted_s, LONGEST_PAUSE_S)


def _parse_seconds(value: str, now: datetime) -> float | None:
    try:
        seconds = float(value)
        return None if math.isnan(seconds) else seconds
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    if then.tzinfo is None:  # "-0000": a date without zone is in UTC
        then = then.replace(tzinfo=UTC)
    return (then - now).total_seconds()


# --- who is waiting now -----------------------------------------------------------------------------------------------


class RetryCounts:
    """Failed calls that will be retried, by cause in a word: a status such as `429`, or `refused`."""

    def __init__(self) -> None:
        self._under_way = Counter[str]()
        self._elsewhere = dict[str, Counter[str]]()
        self.is_shown = False
        """Whether someone shows the counts, so that nobody needs to log them."""

    @contextmanager
    def count(self, cause: str) -> Iterator[None]:
        """Within the context, count a call that waits for its next attempt."""
        self._under_way[cause] += 1
        try:
            yield
        finally:
            self._under_way[cause] -= 1

    @contextmanager
    def show(self) -> Iterator[None]:
        """Note that someone shows the counts for the duration of the context."""
        self.is_shown = True
        try:
            yield
        finally:
            self.is_shown = False

    def note_elsewhere(self, name: str, counts: Mapping[str, int]) -> None:
        """Note the current counts of the process `name`, which works for this one."""
        # Replaced in one step: another thread may be reading.
        elsewhere = {other: known for other, known in self._elsewhere.items() if other != name}
        if counts:
            elsewhere[name] = Counter(counts)
        self._elsewhere = elsewhere

    def under_way(self) -> dict[str, int]:
        """Return the counts that are not 0, highest first."""
        # Copied in one step: another thread asks for this.
        counts = sum(self._elsewhere.values(), self._under_way.copy())
        return {cause: count for cause, count in counts.most_common() if count > 0}


RETRIES = RetryCounts()
"""The counts of this process."""
