# SPDX-License-Identifier: Apache-2.0
"""How long to wait before a call is tried again.

Pure arithmetic: who waits, and how often, is the caller's decision.
"""

import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
_SHORTEST_PAUSE_S = 0.1


def backoff_s(attempt: int, rng: random.Random) -> float:
    """The pause after failed attempt number `attempt` (from 1): doubling up to a bound, and spread out.

    At least half of the full pause, so that it does grow; random above that, so that callers that failed together do
    not come back together.
    """
    doublings = min(attempt - 1, 32)
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * float(2**doublings)) * rng.uniform(0.5, 1.0)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return what the server asks for in `Retry-After` (seconds or a date), bounded; None if it asks for no pause."""
    value = next((headers[name] for name in headers if name.lower() == "retry-after"), None)
    wanted = None if value is None else _seconds(value.strip(), now)
    return None if wanted is None else bound_pause(wanted)


def bound_pause(wanted_s: float) -> float | None:
    """Return the pause that is made for one that was asked for; None if that is none, such as 0 or a time in the past.

    A server that is overloaded and says "at once" would be called in a tight loop.
    """
    return min(wanted_s, LONGEST_PAUSE_S) if wanted_s >= _SHORTEST_PAUSE_S else None


def _seconds(value: str, now: datetime) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_until(value, now)
    return None if math.isnan(seconds) else seconds


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        then = parsedate_to_datetime(date)
    except ValueError:
        return None
    if then.tzinfo is None:  # "-0000": a date without zone is in UTC
        then = then.replace(tzinfo=UTC)
    return (then - now).total_seconds()
