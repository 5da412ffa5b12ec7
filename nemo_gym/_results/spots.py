# SPDX-License-Identifier: Apache-2.0
"""Which rollout a row is and where it stands, packed into one integer, so that sorting these sorts the rows."""

from collections.abc import Iterable
from itertools import pairwise

from nemo_gym._rollouts.types import Key

_ROLLOUT_BITS = 32
_SHARD_BITS = 20
_OFFSET_BITS = 44
_SIZE_BITS = 40
_SHARD_SHIFT = _OFFSET_BITS + _SIZE_BITS
_PLACE_BITS = _SHARD_BITS + _SHARD_SHIFT
_SHARD_MASK, _OFFSET_MASK, _SIZE_MASK = (1 << _SHARD_BITS) - 1, (1 << _OFFSET_BITS) - 1, (1 << _SIZE_BITS) - 1


def packed(key: Key, shard: int, offset: int, size: int) -> int:
    """Row number `key` stands in file number `shard`."""
    place = (shard << _OFFSET_BITS | offset) << _SIZE_BITS | size
    return (key[0] << _ROLLOUT_BITS | key[1]) << _PLACE_BITS | place


def place_of(packed: int) -> tuple[int, int, int]:
    """Shard, offset and size."""
    return packed >> _SHARD_SHIFT & _SHARD_MASK, packed >> _SIZE_BITS & _OFFSET_MASK, packed & _SIZE_MASK


def key_of(packed: int) -> Key:
    key = packed >> _PLACE_BITS
    return key >> _ROLLOUT_BITS, key & (1 << _ROLLOUT_BITS) - 1


def repeated(spots: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbours that are the same rollout."""
    return [pair for pair in pairwise(spots) if pair[0] >> _PLACE_BITS == pair[1] >> _PLACE_BITS]
