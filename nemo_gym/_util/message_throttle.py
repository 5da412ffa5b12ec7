# SPDX-License-Identifier: Apache-2.0
"""Log a message that repeats now and then, with how often it was suppressed since."""

import time
from collections.abc import Callable, Hashable


class MessageThrottle:
    """Lets one of many equal messages through every `every_s` seconds."""

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._said: dict[Hashable, tuple[float, int]] = {}

    def admit(self, what: Hashable) -> int | None:
        """Return how many messages about `what` were suppressed since the last; None if it is too early for another."""
        now = self._clock()
        last, suppressed = self._said.get(what, (None, 0))
        if last is not None and now - last < self._every_s:
            self._said[what] = last, suppressed + 1
            return None
        self._said[what] = now, 0
        return suppressed
