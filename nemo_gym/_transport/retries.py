# SPDX-License-Identifier: Apache-2.0
"""How many calls of this process wait for another attempt right now, and why: counted for whoever shows it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Retries:
    """Calls that failed and are to be tried again, by the cause in a word: a status such as `429`, or `refused`."""

    def __init__(self) -> None:
        self._under_way = Counter[str]()
        self.is_shown = False
        """Somebody shows the counts, so that nobody needs to log them."""

    @contextmanager
    def counted(self, cause: str) -> Iterator[None]:
        """Count a call that waits for its next attempt while the context lasts."""
        self._under_way[cause] += 1
        try:
            yield
        finally:
            self._under_way[cause] -= 1

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Meanwhile somebody shows the counts."""
        self.is_shown = True
        try:
            yield
        finally:
            self.is_shown = False

    def under_way(self) -> dict[str, int]:
        """Return the counts that are not 0, the highest first."""
        # Copied in one step: this is asked for by another thread.
        return {cause: count for cause, count in self._under_way.copy().most_common() if count > 0}


RETRIES = Retries()
"""Those of this process."""
