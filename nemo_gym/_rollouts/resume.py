# SPDX-License-Identifier: Apache-2.0
"""What an interrupted run still has to play: its plan, less what the output holds and what failed for good.

Only files are read here, as streams; whether the run is still the same one is for `manifest.differences` to say.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym._rollouts.compact import KeyCounts, KeySet
from nemo_gym._rollouts.journal import repair
from nemo_gym._rollouts.manifest import Counts
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym._rollouts.planned import read_by_repeat
from nemo_gym._rollouts.types import Failed, Key, Row, key_of
from nemo_gym._transport.failures import NOT_THERE, REFUSED
from nemo_gym._util.jsonl import JsonlError, Line, read_lines, read_rows
from nemo_gym._util.row_keys import (
    ATTEMPT_INDEX_KEY_NAME,
    FAILURE_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_TERMINAL_KEY,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.errors import GymError

_CANCELLED = "cancelled"


class ResumeError(GymError, ValueError):
    """The files of a run do not allow to go on with it."""


@dataclass
class _Record:
    """What output and failures hold."""

    done: KeySet = field(default_factory=KeySet)
    attempts: KeyCounts = field(default_factory=KeyCounts)
    terminal: KeySet = field(default_factory=KeySet)
    failure_attempts: int = 0
    given_up: Counter[str] = field(default_factory=Counter)
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Resumption:
    """What a run has behind it, and what is left."""

    original: int
    """Planned rollouts."""
    done: int
    """Those with a reward."""
    failure_attempts: int
    """Lines of the failures file."""
    terminal: int
    """Failed for good, by their own account."""
    maxed: int
    """Failed as often as a rollout may."""
    left: int
    """Still to be played."""
    given_up: Mapping[str, int]
    """`terminal` and `maxed`, by the kind of their last failure."""
    notices: tuple[str, ...]
    """What was odd about the files and has been dealt with."""
    _paths: RunPaths
    _record: _Record
    _max_attempts: int

    @property
    def counts(self) -> Counts:
        """Where the manifest of the resumed run begins to count."""
        failed = self.terminal + self.maxed
        return Counts(
            requested=self.original, scored=self.done, failed=failed, not_played=self.left, by_kind=dict(self.given_up)
        )

    def todo(self) -> Iterator[Row]:
        """The rows that are left, all tasks once before any again.

        Those that failed before say which attempt this is.
        """
        for row in read_by_repeat(self._paths.materialized):
            key = key_of(row)
            if _fate(key, self._record, self._max_attempts) == "left":
                if attempt := self._record.attempts[key]:
                    row[ATTEMPT_INDEX_KEY_NAME] = attempt
                yield row

    def __str__(self) -> str:
        return (
            f"{self.original} rollouts planned: {self.done} done, {self.left} left, {self.terminal} failed for good, "
            f"{self.maxed} given up after {self._max_attempts} attempts ({self.failure_attempts} failure attempts)"
        )


def planned(paths: RunPaths) -> Iterator[Row]:
    """Every row of the plan, in the order of its file."""
    return read_rows(paths.materialized)


def can_resume(paths: RunPaths) -> bool:
    """Whether there is a run to go on with. ResumeError if there are results, but nothing says of which plan."""
    if paths.materialized.is_file():
        return True
    if paths.output.is_file() and paths.output.stat().st_size > 0:
        raise ResumeError(
            f"{paths.output} holds rollouts, but {paths.materialized.name}, which says what was planned, is missing.\n"
            f"hint: put it back to resume, choose another output, or run without `--resume` to replace the rollouts"
        )
    return False


def what_is_left(paths: RunPaths, max_attempts: int, on_result: Callable[[Row], None] | None = None) -> Resumption:
    """Compare the plan with the record. Torn last lines of the record are repaired on the way.

    `on_result` is given every result that the output holds.
    """
    record = _Record(notices=[notice for log in (paths.output, paths.failures) if (notice := repair(log))])
    _read_output(paths.output, record, on_result)
    _read_failures(paths.failures, record, max_attempts)
    fates: Counter[str] = Counter()
    for line in _keyed(paths.materialized):
        fates[_fate(key_of(line.row), record, max_attempts)] += 1
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
        _max_attempts=max_attempts,
    )


def _fate(key: Key, record: _Record, max_attempts: int) -> str:
    if key in record.done:
        return "done"
    if key in record.terminal:
        return "terminal"
    return "maxed" if record.attempts[key] >= max_attempts else "left"


def _read_output(path: Path, record: _Record, on_result: Callable[[Row], None] | None) -> None:
    repeated = 0
    for line in _keyed(path):
        if not record.done.add(key_of(line.row)):
            repeated += 1
        elif on_result is not None:
            on_result(line.row)
    if repeated:
        record.notices.append(f"{path} holds {repeated} rollouts more than once; each counts once")


def _read_failures(path: Path, record: _Record, max_attempts: int) -> None:
    for line in _keyed(path):
        key, kind = key_of(line.row), _kind(line.row)
        record.failure_attempts += 1
        before = _fate(key, record, max_attempts)
        if line.row.get(NG_TERMINAL_KEY):
            record.terminal.add(key)
        if _uses_up_attempt(kind, _cause(line.row)):
            record.attempts.add(key)
        if before == "left" and _fate(key, record, max_attempts) != "left":
            record.given_up[kind] += 1


def is_given_up(failed: Failed, max_attempts: int) -> bool:
    """Return whether a resumed run will not play this rollout again."""
    if not failed.persist:
        return False
    before = failed.row.get(ATTEMPT_INDEX_KEY_NAME) or 0
    attempts = before + _uses_up_attempt(failed.failure.kind, failed.failure.cause)
    return failed.terminal or attempts >= max_attempts


def _uses_up_attempt(kind: str, cause: object) -> bool:
    """Return whether a failure uses up one of the rollout's chances.

    Who stops a run does not mean to, and a wrong key, model or URL says nothing about the rollout.
    """
    return kind != _CANCELLED and not (kind == "model_endpoint" and cause in (*REFUSED, *NOT_THERE))


def _kind(row: Row) -> str:
    ours = row.get(FAILURE_KEY)
    return str(ours["kind"] if isinstance(ours, dict) and "kind" in ours else row.get(NG_FAILURE_CLASS_KEY))


def _cause(row: Row) -> object:
    ours = row.get(FAILURE_KEY)
    return ours.get("cause") if isinstance(ours, dict) else None


def _keyed(path: Path) -> Iterator[Line]:
    """The rows of a file of the run; one that is not there is empty."""
    try:
        for line in read_lines(path):
            for name in (TASK_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME):
                index = line.row.get(name)
                if not isinstance(index, int) or index < 0:
                    raise JsonlError(f"{path}:{line.number}: `{name}` is {index!r}, not a whole number from 0 on")
            yield line
    except FileNotFoundError:
        return
    except JsonlError as error:
        raise ResumeError(
            f"{error}\nhint: this is damage that a crash does not do, so nothing was changed. If the line is beyond "
            f"repair, delete it: its rollout is played again"
        ) from error
