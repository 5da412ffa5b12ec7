# SPDX-License-Identifier: Apache-2.0
"""The cache."""

from cachebox.entries import Entry


class Cache:
    """Holds up to `size` values; where there is no room, the one that was used longest ago goes."""

    def __init__(self, size: int, ttl: float | None = None) -> None:
        if size < 1:
            raise ValueError(f"a cache of size {size} can hold nothing")
        self.size, self.ttl = size, ttl
        self.evicted = 0
        self._entries: dict[str, Entry] = {}  # the one used longest ago first

    def put(self, key: str, value: object, now: float, ttl: float | None = None) -> None:
        """Store a value for `ttl` seconds, by default for those of the cache."""
        seconds = self.ttl if ttl is None else ttl
        self._drop_stale(now)
        self._entries.pop(key, None)
        while len(self._entries) >= self.size:
            del self._entries[next(iter(self._entries))]
            self.evicted += 1
        self._entries[key] = Entry(value, None if seconds is None else now + seconds)

    def get(self, key: str, now: float, default: object = None) -> object:
        """Return a value and count that as a use of it; `default` if there is none, or it has expired."""
        entry = self._entries.pop(key, None)
        if entry is None or entry.is_stale(now):
            return default
        entry.hits += 1
        self._entries[key] = entry
        return entry.value

    def peek(self, key: str, now: float) -> object:
        """Return a value without using it; None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None or entry.is_stale(now) else entry.value

    def list_keys(self, now: float) -> list[str]:
        """Return the keys of all good values, the one used longest ago first."""
        return [key for key, entry in self._entries.items() if not entry.is_stale(now)]

    def count_hits(self, key: str) -> int:
        """Return how often the value of a key was got since it was put."""
        return self._entries[key].hits if key in self._entries else 0

    def _drop_stale(self, now: float) -> None:
        for key in [key for key, entry in self._entries.items() if entry.is_stale(now)]:
            del self._entries[key]
