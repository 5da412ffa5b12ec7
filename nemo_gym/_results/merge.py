# SPDX-License-Identifier: Apache-2.0
"""Merge the shards of a run into one rollouts file, ordered by task and rollout, with every rollout once.

Rows are copied unchanged. Memory holds only the position of each row, some fifty bytes.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._results.result_rows import AgentRollouts, open_results, read_results, read_rollouts, require_distinct
from nemo_gym._rollouts.outcomes import Key
from nemo_gym._rollouts.run_manifest import Shard, describe_missing, read_manifest
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._util.atomic_files import atomic_writer

_ROLLOUT_BITS = 32
_SHARD_BITS = 20
_OFFSET_BITS = 44
_SIZE_BITS = 40
_PLACE_BITS = _SHARD_BITS + _OFFSET_BITS + _SIZE_BITS
_MOST_OPEN = 128
_MOST_AT_ONCE_BYTES = 1 << 20


def merge_shards(paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]) -> list[AgentRollouts]:
    """Merge the rollouts files `paths` into `output`, complete or not at all; return the rollouts in them.

    Raise ResultsError if a rollout occurs twice, or if `output` is one of several shards.
    """
    target = Path(output)
    if len(paths) > 1 and target.resolve() in {Path(path).resolve() for path in paths}:
        raise ResultsError(
            f"the output {str(target)!r} is itself one of the {len(paths)} files to merge.\n"
            f"hint: write to another place, or remove it if it is the result of an earlier merge"
        )
    # Which rollout every row is and where it stands, as one integer each: sorting these sorts the rows.
    packed: list[int] = []

    def note_place(key: Key, shard: int, offset: int, size: int) -> None:
        place = (shard << _OFFSET_BITS | offset) << _SIZE_BITS | size
        packed.append((key[0] << _ROLLOUT_BITS | key[1]) << _PLACE_BITS | place)

    agents = read_rollouts(paths, note_place=note_place)
    packed.sort()
    if any(one >> _PLACE_BITS == other >> _PLACE_BITS for one, other in pairwise(packed)):
        require_distinct(line for path in paths for line in read_results(path))
    with _Shards(paths) as shards, atomic_writer(target) as file:
        for shard, offset, size in _join_neighbors(map(_unpack, packed)):
            file.write(shards.read(shard, offset, size))
    return agents


def warn_of_shards(paths: Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    """Yield the reasons in the manifests beside `paths` why these rollouts files may not be shards of one run."""
    manifests = [read_manifest(RunPaths.of(os.fspath(path)).manifest) for path in paths]
    sharded = [one for one in manifests if one is not None and one.settings.get("shard")]
    if not sharded:
        return
    if missing := describe_missing([Shard.parse(one.settings["shard"]) for one in sharded]):
        yield missing
    wholes = [{**one.settings, "shard": None} for one in sharded]
    if any(whole != wholes[0] for whole in wholes):
        yield "these shards were collected with different settings; compare the `settings` in their `_run.json`"
    # Pipes are known by the plan of their shard; a file need not be on this machine.
    inputs = {one.input.sha256 for one in sharded if one.input.path != "-" and not one.input.path.startswith("/dev/")}
    if len(inputs) > 1:
        yield "these shards are of different inputs; compare the `input` in their `_run.json`"


def _unpack(packed: int) -> tuple[int, int, int]:
    """Return shard, offset and size."""
    offset = packed >> _SIZE_BITS & (1 << _OFFSET_BITS) - 1
    return packed >> _OFFSET_BITS + _SIZE_BITS & (1 << _SHARD_BITS) - 1, offset, packed & (1 << _SIZE_BITS) - 1


def _join_neighbors(places: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Join the places of rows that follow one another in a shard."""
    shard, offset, size = next(places, (0, 0, 0))
    for next_shard, next_offset, next_size in places:
        if next_offset == offset + size and next_shard == shard and size < _MOST_AT_ONCE_BYTES:
            size += next_size
        else:
            yield shard, offset, size
            shard = next_shard
            offset = next_offset
            size = next_size
    if size:
        yield shard, offset, size


class _Shards:
    """Lines of many files in any order, with a bounded number of files open."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self._paths = paths
        self._open: dict[int, BinaryIO] = {}

    def read(self, shard: int, offset: int, size: int) -> bytes:
        if shard not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            self._open[shard] = open_results(self._paths[shard], buffer_bytes=0)
        raw = os.pread(self._open[shard].fileno(), size, offset)
        if len(raw) < size:
            raise ResultsError(f"{os.fspath(self._paths[shard])!r} has become shorter while it was read")
        return raw if raw.endswith(b"\n") else raw + b"\n"

    def __enter__(self) -> "_Shards":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()
