# SPDX-License-Identifier: Apache-2.0
"""Read rollouts files, one row at a time: which rollout it is, whose, and what the metrics need of it.

The response and other bulk are dropped as soon as a line is parsed. Nothing is written or computed here.
"""

import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nemo_gym._metrics.rollouts import ResultsError, read_usage
from nemo_gym._rollouts.types import Key, Row
from nemo_gym._util.jsonl import Line, number_lines, parse_line, parse_lines
from nemo_gym._util.row_keys import (
    AGENT_REF_KEY_NAME,
    BULKY_KEYS,
    NG_FAILURE_CLASS_KEY,
    RESPONSE_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)

# Lines are long: a large buffer saves a third of the reading time.
_BUFFER_BYTES = 1 << 20
_SIDECARS = ("_materialized_inputs.jsonl", "_failures.jsonl", "_reward_profiling.jsonl")
# A line that ends like this has the rollout index as the last member of its object.
_LAST_MEMBER = f',"{ROLLOUT_INDEX_KEY_NAME}":'.encode()
_INDEX = re.compile(rb"(0|[1-9][0-9]{0,17})\}\n")


SHARDS_SHARE_NO_ROLLOUT = (
    "hint: shards of one run share no rollout: collect them with `gym eval run --shard 1/N` to `--shard N/N`, each "
    "into an output of its own; check that the pattern matches no other files, such as a merge of the same shards"
)


class Place(NamedTuple):
    """Where a row stands."""

    path: str
    line: int
    """Counts from 1."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class ResultRow(NamedTuple):
    key: Key
    agent: str | None
    row: Row
    """Without its bulk; of the response, only the usage is left."""
    place: Place


def expand_globs(patterns: str | Iterable[str]) -> list[Path]:
    """Return the files that a comma list of paths and wildcards names, each once, in order.

    Files that a run keeps beside its rollouts (`*_failures.jsonl` and such) are left out where a wildcard finds them.
    """
    given = patterns.split(",") if isinstance(patterns, str) else list(patterns)
    found: dict[Path, Path] = {}
    for pattern in (one.strip() for one in given if one.strip()):
        matches = _find_files(pattern)
        if not matches:
            raise ResultsError(
                f"{pattern!r} matches no rollouts file (looked in {os.getcwd()!r}).\n"
                f"hint: quote the pattern so that the shell leaves it alone, and check the folder"
            )
        for path in matches:
            found.setdefault(path.resolve(), path)
    if not found:
        raise ResultsError("no rollouts file is named.\nhint: give a path or a pattern, such as 'results/*.jsonl'")
    return list(found.values())


def open_results(path: str | os.PathLike[str], buffer_bytes: int = _BUFFER_BYTES) -> BinaryIO:
    """Open a file to read; ResultsError if that cannot be done."""
    try:
        return open(path, "rb", buffering=buffer_bytes)
    except OSError as error:
        raise ResultsError(f"{os.fspath(path)!r} cannot be read: {error.strerror}") from error


def read_results(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Yield every row of a rollouts file with its place; a last line that was cut off is skipped with a warning."""
    with open_results(path) as file:
        yield from parse_lines(file, path, torn_tail_ok=True)


def read_planned(path: str | os.PathLike[str]) -> Iterator[tuple[int, int, Key, Row]]:
    """Yield number, byte offset, key and row of every line of a materialized inputs file.

    The rollouts of a task are planned as equal lines but for the last member, the rollout index. Such a line is not
    parsed again: the row that comes with it is that of the rollout before it, and only the key says which one it is.
    """
    task, row = 0, Row()
    parsed: tuple[bytes, bytes] | None = None
    with open_results(path) as file:
        for number, offset, raw in number_lines(file):
            members, _, index = raw.rpartition(_LAST_MEMBER)
            if parsed and members == parsed[0] and _INDEX.fullmatch(index) and _INDEX.fullmatch(parsed[1]):
                yield number, offset, (task, int(index[:-2])), row
            elif (found := parse_line(raw, path, number, torn_tail_ok=True)) is not None:
                key, row, parsed = require_key(found, path, number), found, (members, index)
                task = key[0]
                yield number, offset, key, row


def read_stripped_rows(paths: Iterable[str | os.PathLike[str]]) -> Iterator[ResultRow]:
    """Yield every row of the rollouts files `paths`, without its bulk."""
    for path in paths:
        for line in read_results(path):
            key = require_key(line.row, path, line.number)
            yield ResultRow(key, agent_of(line.row), strip_row(line.row), Place(os.fspath(path), line.number))


def strip_row(row: Row) -> Row:
    """Return what `/aggregate_metrics` is given of a row."""
    kept = {name: value for name, value in row.items() if name not in BULKY_KEYS}
    if usage := read_usage(row):
        kept[RESPONSE_KEY_NAME] = {"usage": usage}
    return kept


def require_key(row: Row, path: str | os.PathLike[str], number: int) -> Key:
    """Return the key of the row on line `number`; an index that is missing counts as 0, what is no index raises."""
    task, rollout = row.get(TASK_INDEX_KEY_NAME) or 0, row.get(ROLLOUT_INDEX_KEY_NAME) or 0
    if type(task) is int and type(rollout) is int and task >= 0 and rollout >= 0:
        return task, rollout
    raise ResultsError(
        f"{os.fspath(path)}:{number}: {TASK_INDEX_KEY_NAME!r} is {task!r} and {ROLLOUT_INDEX_KEY_NAME!r} is "
        f"{rollout!r}; an index is a whole number from 0 on"
    )


def agent_of(row: Row) -> str | None:
    """Return the name of the agent that played the row."""
    agent_ref = row.get(AGENT_REF_KEY_NAME)
    name = agent_ref.get("name") if isinstance(agent_ref, dict) else None
    return name if isinstance(name, str) else None


def reward_of(row: Row) -> float | None:
    """Return the reward of a scored rollout; None for a row that says it failed, or has no number for a reward."""
    reward = row.get(REWARD_KEY_NAME)
    if row.get(NG_FAILURE_CLASS_KEY) or not isinstance(reward, (int, float)):
        return None
    return float(reward)


def count_of(n_scored: int, n_requested: int | None) -> str:
    """Say how much a number rests on: no number is shown without it."""
    return f"{n_scored} of {'?' if n_requested is None else n_requested}"


class SeenKeys:
    """Which rollouts were read so far, and where; reading one twice is an error."""

    def __init__(self) -> None:
        self._lines: dict[Key, int] = {}
        self._starts: list[tuple[int, str]] = []
        self._read = 0

    def begin(self, path: str | os.PathLike[str]) -> None:
        """Take the keys from here on as those of `path`."""
        # Lines are numbered through all files, so that one integer says where a key was.
        self._starts.append((self._read, os.fspath(path)))

    def add(self, key: Key, line: int) -> None:
        self._read = self._starts[-1][0] + line
        if self._lines.setdefault(key, self._read) != self._read:
            raise ResultsError(
                f"task {key[0]}, rollout {key[1]} occurs twice: {self._place(self._lines[key])} and "
                f"{self._place(self._read)}.\n{SHARDS_SHARE_NO_ROLLOUT}"
            )

    def _place(self, read: int) -> Place:
        start, path = max(start for start in self._starts if start[0] < read)
        return Place(path, read - start)


def _find_files(pattern: str) -> list[Path]:
    if os.path.isfile(pattern):
        return [Path(pattern)]
    found = (path for path in glob.glob(os.path.expanduser(pattern), recursive=True) if os.path.isfile(path))
    return [Path(path) for path in sorted(found) if not path.endswith(_SIDECARS)]
