# SPDX-License-Identifier: Apache-2.0
"""What a cache keeps of a value."""

from dataclasses import dataclass


@dataclass
class Entry:
    """A value and how long it is good for."""

    value: object
    expires_at: float | None
    hits: int = 0

    def is_stale(self, now: float) -> bool:
        """Tell whether the entry has expired: at the very moment when its time is over, it has."""
        return self.expires_at is not None and now >= self.expires_at
