# SPDX-License-Identifier: Apache-2.0
"""What an interrupted run still has to do: its plan, minus what the output holds and what failed for good.

This module only reads files, as streams; `run_manifest.find_differences` decides whether the run is still the same one.
Every task is run once before any is run again: a plan file holds a task's rollouts side by side, and an interrupted run
in that order would know much about few tasks.
"""

import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from nemo_gym._rollouts.compact import KeyCounts, KeySet
from nemo_gym._rollouts.journal import repair, uses_up_attempt
from nemo_gym._rollouts.outcomes import Key, Row, key_of
from nemo_gym._rollouts.run_manifest import Counts
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._util.jsonl_files import JsonlError, Line, loads_line, read_lines
from nemo_gym._util.row_keys import (
    ATTEMPT_INDEX_KEY_NAME,
    FAILURE_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_TERMINAL_KEY,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.errors import GymError

_LAST_MEMBER = re.compile(rb'"%b":([0-9]+)\}\s*\Z' % ROLLOUT_INDEX_KEY_NAME.encode())
_TAIL_BYTES = 64
_BUFFER_BYTES = 1 << 13


class ResumeError(GymError, ValueError):
    """The files of a run do not allow it to continue."""


@dataclass
class _Record:
    """What the output and the failures file hold."""

    max_attempts: int
    done: KeySet = field(default_factory=KeySet)
    attempts: KeyCounts = field(default_factory=KeyCounts)
    terminal: KeySet = field(default_factory=KeySet)
    failure_attempts: int = 0
    given_up: Counter[str] = field(default_factory=Counter)
    notices: list[str] = field(default_factory=list)

    def classify(self, key: Key) -> str:
        """Return what became of a rollout: "done", "terminal", "maxed" (see `Resumption`) or "left"."""
        if key in self.done:
            return "done"
        if key in self.terminal:
            return "terminal"
        return "maxed" if self.attempts[key] >= self.max_attempts else "left"


@dataclass(frozen=True)
class Resumption:
    """What a run has done so far, and what is left."""

    original: int
    """Planned rollouts."""
    done: int
    """Rollouts with a reward."""
    failure_attempts: int
    """Lines of the failures file."""
    terminal: int
    """Failed for good, by their own account."""
    maxed: int
    """Failed as often as a rollout may."""
    left: int
    """Still to run."""
    given_up: Mapping[str, int]
    """`terminal` and `maxed`, by the kind of their last failure."""
    notices: tuple[str, ...]
    """Irregularities in the files that were dealt with."""
    _paths: RunPaths
    _record: _Record

    @property
    def counts(self) -> Counts:
        """The counts with which the resumed run's manifest starts."""
        failed = self.terminal + self.maxed
        return Counts(
            requested=self.original, scored=self.done, failed=failed, not_played=self.left, by_kind=dict(self.given_up)
        )

    def read_remaining(self) -> Iterator[Row]:
        """Yield the remaining rows, all tasks once before any again; each says which attempt this is."""
        for row in read_by_repeat(self._paths.materialized):
            key = key_of(row)
            if self._record.classify(key) == "left":
                if attempt := self._record.attempts[key]:
                    row[ATTEMPT_INDEX_KEY_NAME] = attempt
                yield row

    def __str__(self) -> str:
        return (
            f"{self.original} rollouts planned: {self.done} done, {self.left} left, {self.terminal} failed for good, "
            f"{self.maxed} given up after {self._record.max_attempts} attempts "
            f"({self.failure_attempts} failure attempts)"
        )


def can_resume(paths: RunPaths) -> bool:
    """Return whether there is a run to resume. Raise ResumeError if there are results without their plan."""
    if paths.materialized.is_file():
        return True
    if paths.output.is_file() and paths.output.stat().st_size > 0:
        raise ResumeError(
            f"{paths.output} holds rollouts, but {paths.materialized.name}, which says what was planned, is missing.\n"
            f"hint: put it back to resume, choose another output, or run without `--resume` to replace the rollouts"
        )
    return False


def find_remaining(paths: RunPaths, max_attempts: int, on_result: Callable[[Row], None] | None = None) -> Resumption:
    """Compare the plan with the record. Torn last lines of the record are repaired on the way.

    `on_result` is called with every result in the output.
    """
    notices = [notice for log in (paths.output, paths.failures) if (notice := repair(log))]
    record = _Record(max_attempts, notices=notices)
    _read_output(paths.output, record, on_result)
    _read_failures(paths.failures, record)
    fates = Counter(record.classify(key_of(line.row)) for line in _read_indexed_rows(paths.materialized))
    if fates["done"] < len(record.done):
        raise ResumeError(
            f"{paths.output} holds {len(record.done) - fates['done']} rollouts that are not in {paths.materialized}: "
            f"they belong to another run.\nhint: choose another output, or run without `--resume` to replace them"
        )
    return Resumption(
        original=fates.total(),
        done=fates["done"],
        failure_attempts=record.failure_attempts,
        terminal=fates["terminal"],
        maxed=fates["maxed"],
        left=fates["left"],
        given_up=record.given_up,
        notices=tuple(record.notices),
        _paths=paths,
        _record=record,
    )


def _read_output(path: Path, record: _Record, on_result: Callable[[Row], None] | None) -> None:
    repeated = 0
    for line in _read_indexed_rows(path):
        if not record.done.add(key_of(line.row)):
            repeated += 1
        elif on_result is not None:
            on_result(line.row)
    if repeated:
        record.notices.append(f"{path} holds {repeated} rollouts more than once; each counts once")


def _read_failures(path: Path, record: _Record) -> None:
    for line in _read_indexed_rows(path):
        key = key_of(line.row)
        known = line.row.get(FAILURE_KEY)
        if not isinstance(known, dict):
            known = {}
        kind = str(known.get("kind", line.row.get(NG_FAILURE_CLASS_KEY)))
        record.failure_attempts += 1
        before = record.classify(key)
        if line.row.get(NG_TERMINAL_KEY):
            record.terminal.add(key)
        if uses_up_attempt(kind, known.get("cause")):
            record.attempts.add(key)
        if before == "left" and record.classify(key) != "left":
            record.given_up[kind] += 1


def _read_indexed_rows(path: Path) -> Iterator[Line]:
    """Yield the rows of a file of the run; a missing file counts as empty."""
    try:
        for line in read_lines(path):
            for name in (TASK_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME):
                index = line.row.get(name)
                if not isinstance(index, int) or index < 0:
                    raise JsonlError(f"{path}:{line.number}: `{name}` is {index!r}, not a whole number from 0 up")
            yield line
    except FileNotFoundError:
        return
    except JsonlError as error:
        raise ResumeError(
            f"{error}\nhint: a crash does not cause this damage, so nothing was changed. If the line cannot be "
            f"repaired, delete it: its rollout will run again"
        ) from error


def read_by_repeat(path: str | os.PathLike[str]) -> Iterator[Row]:
    """Yield every row of the plan `path`, ordered by rollout index, then by position in the file."""
    with open(path, "rb", buffering=_BUFFER_BYTES) as file:
        later = _LaterRows()
        offset = 0
        for number, raw in enumerate(file, 1):
            if raw.strip():
                found = _LAST_MEMBER.search(raw, max(len(raw) - _TAIL_BYTES, 0))
                if found is not None:
                    index = int(found[1])
                else:  # a plan written by another tool may order its members differently
                    index = int(loads_line(raw, path, number).get(ROLLOUT_INDEX_KEY_NAME) or 0)
                if index == 0:
                    yield loads_line(raw, path, number)
                else:
                    later.add(index, offset, number)
            offset += len(raw)
        while (turn := later.next_index()) is not None:
            for number, raw in later.take(turn, file):
                yield loads_line(raw, path, number)


class _LaterRows:
    """Rows to read later, as ranges of lines with consecutive rollout indices: about 30 bytes per task."""

    def __init__(self) -> None:
        self._index = array("Q")
        self._left = array("Q")
        self._offset = array("Q")
        self._number = array("Q")

    def add(self, index: int, offset: int, number: int) -> None:
        """Note the row on line `number`; calls must come in file order."""
        if self._number and number == self._number[-1] + self._left[-1] and index == self._index[-1] + self._left[-1]:
            self._left[-1] += 1
            return
        self._index.append(index)
        self._left.append(1)
        self._offset.append(offset)
        self._number.append(number)

    def next_index(self) -> int | None:
        """Return the lowest remaining rollout index; None if there is none."""
        return min((index for index, left in zip(self._index, self._left, strict=True) if left), default=None)

    def take(self, index: int, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Read the rows with this rollout index: number and content of each line."""
        for stretch, (its_index, left) in enumerate(zip(self._index, self._left, strict=True)):
            if left and its_index == index:
                file.seek(self._offset[stretch])
                raw = file.readline()
                yield self._number[stretch], raw
                self._offset[stretch] += len(raw)
                self._number[stretch] += 1
                self._index[stretch] += 1
                self._left[stretch] -= 1
