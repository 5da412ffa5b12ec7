# SPDX-License-Identifier: Apache-2.0
"""What happens a thousand times is said now and then, with how often it happened since."""

import time
from collections.abc import Callable, Hashable


class Seldom:
    """Lets one of many equal messages through every `every_s` seconds."""

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._clock = every_s, clock
        self._said: dict[Hashable, tuple[float, int]] = {}

    def passed_over(self, what: Hashable) -> int | None:
        """How many of `what` were kept back since the last one, if it is time for another; None if it is not."""
        now = self._clock()
        last, kept_back = self._said.get(what, (None, 0))
        if last is not None and now - last < self._every_s:
            self._said[what] = last, kept_back + 1
            return None
        self._said[what] = now, 0
        return kept_back
