# SPDX-License-Identifier: Apache-2.0
"""Sets and counters that hold a million rollouts in a few megabytes; plain dicts and sets would take a hundred.

Keys are dense in practice (tasks 0…n, rollouts 0…k), and these containers are small for dense keys. Sparse keys work
too, at the cost of a dict.
"""

import hashlib
from array import array
from collections.abc import Iterator, Mapping
from typing import TypeVar

from nemo_gym._rollouts.outcomes import Key

NumberT = TypeVar("NumberT", int, float)
_WORD = 6
_ROLLOUT_BITS = 32
_PREFIX_BYTES = 2
_DIGEST_BYTES = 16
_INDEX_BYTES = 6
_RECORD_BYTES = _DIGEST_BYTES - _PREFIX_BYTES + _INDEX_BYTES


class KeySet:
    """A set of rollouts: one bit each where task indices are dense."""

    def __init__(self) -> None:
        self._words: dict[int, int] = {}
        self._size = 0

    def add(self, key: Key) -> bool:
        """Add `key`; return whether it is new."""
        word, bit = self._place(key)
        bits = self._words.get(word, 0)
        if bits & bit:
            return False
        self._words[word] = bits | bit
        self._size += 1
        return True

    def __contains__(self, key: Key) -> bool:
        word, bit = self._place(key)
        return bool(self._words.get(word, 0) & bit)

    def __len__(self) -> int:
        return self._size

    @staticmethod
    def _place(key: Key) -> tuple[int, int]:
        task, rollout = key
        return (task >> _WORD) << _ROLLOUT_BITS | rollout, 1 << (task & (1 << _WORD) - 1)


class KeyCounts:
    """A count per rollout: one `KeySet` for "at least once", one for "at least twice", and so on."""

    def __init__(self) -> None:
        self._at_least: list[KeySet] = []

    def add(self, key: Key) -> int:
        """Count `key` once more; return the new count."""
        for number, level in enumerate(self._at_least, 1):
            if level.add(key):
                return number
        self._at_least.append(KeySet())
        self._at_least[-1].add(key)
        return len(self._at_least)

    def __getitem__(self, key: Key) -> int:
        return next((number for number, level in enumerate(self._at_least) if key not in level), len(self._at_least))


class TaskNumbers(Mapping[int, NumberT]):
    """A number per task, 0 by default: a few bytes each while task indices grow without large gaps."""

    def __init__(self, typecode: str) -> None:
        """`typecode` is the type of the numbers, as for `array`."""
        self._dense: array[NumberT] = array(typecode)
        self._scattered: dict[int, NumberT] = {}

    def __getitem__(self, task: int) -> NumberT:
        if task < len(self._dense):
            return self._dense[task]
        return self._scattered.get(task, 0)

    def __iter__(self) -> Iterator[int]:
        yield from (task for task, number in enumerate(self._dense) if number)
        yield from self._scattered

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add(self, task: int, number: NumberT) -> None:
        dense = self._dense
        scattered = self._scattered
        size = len(dense)
        if size <= task < 2 * size + 1024 and task not in scattered:
            dense.frombytes(bytes((task + 1 - size) * dense.itemsize))
            for moved in [one for one in scattered if one < task]:
                dense[moved] = scattered.pop(moved)
        if task < len(dense):
            dense[task] += number
        else:
            scattered[task] = scattered.get(task, 0) + number


class TaskCounts(TaskNumbers[int]):
    """A count per task."""

    def __init__(self) -> None:
        super().__init__("I")


class NumbersByDigest:
    """Maps texts, identified by a 16-byte digest, to numbers."""

    def __init__(self) -> None:
        self._buckets: dict[bytes, bytearray] = {}

    def find(self, digest: bytes) -> int | None:
        bucket = self._buckets.get(digest[:_PREFIX_BYTES], b"")
        rest = digest[_PREFIX_BYTES:]
        at = bucket.find(rest)
        # Ignore an accidental match that straddles two records.
        while at > 0 and at % _RECORD_BYTES:
            at = bucket.find(rest, at + 1)
        if at < 0:
            return None
        return int.from_bytes(bucket[at + len(rest) : at + _RECORD_BYTES], "big")

    def add(self, digest: bytes, number: int) -> None:
        bucket = self._buckets.setdefault(digest[:_PREFIX_BYTES], bytearray())
        bucket += digest[_PREFIX_BYTES:] + number.to_bytes(_INDEX_BYTES, "big")


def digest_of(raw: bytes) -> bytes:
    """Return the digest by which `NumbersByDigest` identifies a text."""
    return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES).digest()
