# SPDX-License-Identifier: Apache-2.0
"""How many different values there are among many, in 8 to 16 bytes a value once they are many. They are not kept."""

import functools
import importlib
from array import array
from bisect import bisect_left
from collections.abc import Collection
from itertools import pairwise
from typing import Any

_MANY = 1 << 16
_ROOM = 64
_BUCKETS = 64
_BORDERS = [number * (1 << 64) // _BUCKETS - (1 << 63) for number in range(_BUCKETS + 1)]


class Distinct:
    """Counts different texts or byte strings by their 64-bit hashes.

    Among ten million values, the chance that two of them share a hash is about one in four hundred thousand.
    """

    def __init__(self) -> None:
        self.total = 0
        """How many values were added, equal ones too."""
        self._new = set[int]()
        self._buckets: list[array[int]] = []
        self._limits: list[int] = []

    def add(self, value: str | bytes) -> None:
        self.total += 1
        self._new.add(hash(value))

    def add_all(self, values: Collection[str | bytes]) -> None:
        self.total += len(values)
        self._new.update(map(hash, values))

    def add_hash(self, number: int) -> None:
        """Add a value whose hash is known."""
        self.total += 1
        self._new.add(number)

    def settle(self) -> None:
        """To be called now and then: packs what was added, once it is much."""
        if len(self._new) > _MANY:
            self._pack()

    def __or__(self, other: "Distinct") -> "Distinct":
        """What either has seen."""
        both = Distinct()
        both.total = self.total + other.total
        for numbers in (self._new, other._new, *self._buckets, *other._buckets):
            both._new.update(numbers)
            both.settle()
        return both

    def __len__(self) -> int:
        """How many of the values differ."""
        if not self._buckets:
            return len(self._new)
        new = _by_bucket(self._new)
        return sum(len({*bucket, *numbers}) for bucket, numbers in zip(self._buckets, new, strict=True))

    def _pack(self) -> None:
        if not self._buckets:
            self._buckets, self._limits = [array("q") for _ in range(_BUCKETS)], [_ROOM] * _BUCKETS
        for place, numbers in enumerate(_by_bucket(self._new)):
            bucket = self._buckets[place]
            bucket.extend(numbers)
            # Only once it has doubled, so that every number is looked at a few times at most.
            if len(bucket) > self._limits[place]:
                kept = self._buckets[place] = array("q", set(bucket))
                self._limits[place] = 2 * len(kept) + _ROOM
        self._new.clear()


def _by_bucket(numbers: set[int]) -> "list[array[int]]":
    """Numbers, divided by size into as many parts as there are buckets."""
    if (np := _numpy()) is not None:
        # The same as below: to sort numbers of 64 bits takes Python long.
        found = np.fromiter(numbers, np.int64, len(numbers))
        found.sort()
        return [array("q", part.tobytes()) for part in np.split(found, np.searchsorted(found, _BORDERS[1:-1]))]
    ordered = sorted(numbers)
    ends = [bisect_left(ordered, border) for border in _BORDERS]
    return [array("q", ordered[begin:end]) for begin, end in pairwise(ends)]


@functools.cache
def _numpy() -> Any:
    """None where it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None
