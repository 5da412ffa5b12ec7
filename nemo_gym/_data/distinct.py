# SPDX-License-Identifier: Apache-2.0
"""How many different values there are among many, in 8 to 16 bytes a value once they are many. They are not kept."""

import functools
import importlib
from array import array
from bisect import bisect_left
from collections.abc import Collection
from itertools import pairwise
from typing import Any

_MANY = 1 << 18
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
        # As they come, because a set of so many numbers is slow to reach: it does not fit a processor's cache.
        self._new = array("q")
        self._buckets: list[array[int]] = []
        self._limits: list[int] = []

    def add(self, value: str | bytes) -> None:
        self.total += 1
        self._new.append(hash(value))

    def add_all(self, values: Collection[str | bytes]) -> None:
        self.total += len(values)
        self._new.extend(map(hash, values))

    def add_hashes(self, numbers: Collection[int]) -> None:
        """Add values whose hashes are known."""
        self.total += len(numbers)
        self._new.extend(numbers)

    def compact(self) -> None:
        """Pack what was added, once it is much; to be called now and then."""
        if len(self._new) > _MANY:
            self._new = _sort_distinct(self._new)
            # Few that come again and again stay as they are.
            if len(self._new) > _MANY // 2:
                self._pack()

    def __or__(self, other: "Distinct") -> "Distinct":
        """Return what either has seen."""
        both = Distinct()
        both.total = self.total + other.total
        for numbers in (self._new, other._new, *self._buckets, *other._buckets):
            both._new.extend(numbers)
            both.compact()
        return both

    def __len__(self) -> int:
        """Return how many of the values differ."""
        new = _sort_distinct(self._new)
        if not self._buckets:
            return len(new)
        parts = zip(self._buckets, _split_by_bucket(new), strict=True)
        return sum(len(_sort_distinct(bucket + numbers)) for bucket, numbers in parts)

    def _pack(self) -> None:
        if not self._buckets:
            self._buckets, self._limits = [array("q") for _ in range(_BUCKETS)], [_ROOM] * _BUCKETS
        for place, numbers in enumerate(_split_by_bucket(self._new)):
            bucket = self._buckets[place]
            bucket.extend(numbers)
            # Only once it has doubled, so that every number is looked at a few times at most.
            if len(bucket) > self._limits[place]:
                kept = self._buckets[place] = _sort_distinct(bucket)
                self._limits[place] = 2 * len(kept) + _ROOM
        self._new = array("q")


def _sort_distinct(numbers: "array[int]") -> "array[int]":
    """Return each of the numbers once, in order."""
    if (np := _load_numpy()) is not None:
        # The same as below: to sort numbers of 64 bits takes Python long.
        return array("q", np.unique(np.asarray(numbers)).tobytes())
    return array("q", sorted(set(numbers)))


def _split_by_bucket(ordered: "array[int]") -> "list[array[int]]":
    """Divide numbers in order by size into as many parts as there are buckets."""
    ends = [bisect_left(ordered, border) for border in _BORDERS]
    return [ordered[begin:end] for begin, end in pairwise(ends)]


@functools.cache
def _load_numpy() -> Any:
    """Return numpy, None where it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None
