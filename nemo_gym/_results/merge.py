# SPDX-License-Identifier: Apache-2.0
"""Put the shards of a run together: one rollouts file, in order of task and rollout, every rollout once.

Rows are copied as they are. Only where each one stands is held in memory, some fifty bytes a row.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from nemo_gym._results.rows import Place, ResultsError, key_at, opened, placed_lines
from nemo_gym._rollouts.types import Key
from nemo_gym._util.files import atomic_writer

_ROLLOUT_BITS = 32
_SHARD_BITS = 20
_OFFSET_BITS = 44
_PLACE_BITS = _SHARD_BITS + _OFFSET_BITS
_MOST_OPEN = 128
# About a row: neighbours in the output are seldom neighbours in a shard.
_BUFFER_BYTES = 1 << 14


@dataclass(frozen=True)
class Merged:
    output: Path
    n_rows: int
    n_shards: int


def merge_shards(paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]) -> Merged:
    """Merge the rollouts files `paths` into `output`, complete or not at all.

    ResultsError if a rollout is in two places, or if `output` is one of several shards.
    """
    target = Path(output)
    if len(paths) > 1 and target.resolve() in {Path(path).resolve() for path in paths}:
        raise ResultsError(
            f"the output {str(target)!r} is itself one of the {len(paths)} files to merge.\n"
            f"hint: write to another place, or remove it if it is the result of an earlier merge"
        )
    # One integer says which rollout a row is and where it stands, so sorting them sorts the rows.
    spots = [
        _packed(key_at(row, path, line), shard, offset)
        for shard, path in enumerate(paths)
        for line, offset, row in placed_lines(path)
    ]
    spots.sort()
    _require_distinct(spots, paths)
    with _Shards(paths) as shards, atomic_writer(target) as file:
        for spot in spots:
            file.write(shards.line(spot))
    return Merged(target, len(spots), len(paths))


def _packed(key: Key, shard: int, offset: int) -> int:
    return ((key[0] << _ROLLOUT_BITS | key[1]) << _SHARD_BITS | shard) << _OFFSET_BITS | offset


def _shard_and_offset(spot: int) -> tuple[int, int]:
    return spot >> _OFFSET_BITS & (1 << _SHARD_BITS) - 1, spot & (1 << _OFFSET_BITS) - 1


def _require_distinct(spots: Sequence[int], paths: Sequence[str | os.PathLike[str]]) -> None:
    repeated = [pair for pair in pairwise(spots) if pair[0] >> _PLACE_BITS == pair[1] >> _PLACE_BITS]
    if repeated:
        first, second = repeated[0]
        key = first >> _PLACE_BITS
        raise ResultsError(
            f"task {key >> _ROLLOUT_BITS}, rollout {key & (1 << _ROLLOUT_BITS) - 1} occurs twice: "
            f"{_place(first, paths)} and {_place(second, paths)} ({len(repeated)} such pairs in all).\n"
            f"hint: shards of one run share no rollout; check that the pattern matches no other files, such as a "
            f"merge of the same shards"
        )


def _place(spot: int, paths: Sequence[str | os.PathLike[str]]) -> Place:
    shard, offset = _shard_and_offset(spot)
    line = next(line for line, start, _ in placed_lines(paths[shard]) if start == offset)
    return Place(os.fspath(paths[shard]), line)


class _Shards:
    """Lines of many files in any order, with a bounded number of files open."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self._paths = paths
        self._open: dict[int, BinaryIO] = {}

    def line(self, spot: int) -> bytes:
        shard, offset = _shard_and_offset(spot)
        file = self._open.get(shard) or self._opened(shard)
        file.seek(offset)
        raw = file.readline()
        return raw if raw.endswith(b"\n") else raw + b"\n"

    def _opened(self, shard: int) -> BinaryIO:
        if len(self._open) >= _MOST_OPEN:
            self._open.pop(next(iter(self._open))).close()
        self._open[shard] = opened(self._paths[shard], buffer_bytes=_BUFFER_BYTES)
        return self._open[shard]

    def __enter__(self) -> "_Shards":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()
