# SPDX-License-Identifier: Apache-2.0
"""Plan which stored responses to score again, with which input rows, and into which file.

The caller calls the verifiers and records their answers.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._results.result_rows import (
    Place,
    ResultLine,
    open_results,
    read_agent_name,
    read_results,
    read_reward,
    require_distinct,
)
from nemo_gym._rollouts.compact import KeySet
from nemo_gym._rollouts.outcomes import Key, Row
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._util.jsonl_files import loads_line
from nemo_gym._util.row_keys import NG_FAILURE_CLASS_KEY, RESPONSE_FACTS, RESPONSE_KEY_NAME
from nemo_gym.failure_kinds import JUDGE_FAILED

UNSAFE_PREFIX = "unsafe_"
STATELESS = "stateless"
_MOST_NAMED = 10
_BUFFER_BYTES = 1 << 14


class Payload(NamedTuple):
    """What a verifier is to score."""

    key: Key
    agent: str | None
    row: Row
    """The materialized input row with the stored response in it, and what is known of the response's tokens."""


class _Todo(NamedTuple):
    key: Key
    place: Place
    offset: int
    """Where the row with the stored response begins."""


@dataclass(frozen=True)
class Reverification:
    """The stored responses to score again."""

    source: Path
    """The file with the stored responses: the rollouts, or the failures where only failed judgments are redone."""
    todo: list[_Todo]
    n_done: int
    """Rollouts that the output holds already."""
    n_seeds: int
    """Scored rollouts that are copied to the output as they are."""
    _inputs: Path
    _input_offsets: dict[Key, int]
    _rollouts: Path
    _done: KeySet

    @property
    def n_requested(self) -> int:
        """How many rollouts the output holds if all are scored."""
        return self.n_done + self.n_seeds + len(self.todo)

    def seeds(self) -> Iterator[Row]:
        """Yield the rollouts to copy before any is scored."""
        if self.n_seeds:
            yield from (line.row for line in _read_scored(self._rollouts) if line.key not in self._done)

    def payloads(self) -> Iterator[Payload]:
        """Yield the responses to score, in the order of the source."""
        with open_results(self.source, _BUFFER_BYTES) as source, open_results(self._inputs, _BUFFER_BYTES) as inputs:
            for key, place, offset in self.todo:
                source.seek(offset)
                inputs.seek(self._input_offsets[key])
                stored = loads_line(source.readline(), place.path, place.line)
                row = loads_line(inputs.readline(), self._inputs, 0)
                kept = {name: stored[name] for name in (RESPONSE_KEY_NAME, *RESPONSE_FACTS) if name in stored}
                yield Payload(key, read_agent_name(row), {**row, **kept})


def choose_output(output: str | os.PathLike[str], reverify_modes: Mapping[str, str], *, force: bool = False) -> Path:
    """Return where the new scores go; `reverify_modes` are those that the resources servers declare, by name.

    A server that is not stateless may score a stored response differently outside its session. That needs `force`, and
    marks the name of the output.
    """
    path = Path(output)
    others = {name: mode for name, mode in sorted(reverify_modes.items()) if mode != STATELESS}
    if not others:
        return path
    if not force:
        named = ", ".join(f"{name!r} ({mode})" for name, mode in others.items())
        raise ResultsError(
            f"stored responses cannot be scored again safely by {named}: a verifier that looks at the state of its "
            f"session finds an empty one.\nhint: `--force` does it all the same, into {UNSAFE_PREFIX + path.name!r}"
        )
    return path.with_name(UNSAFE_PREFIX + path.name.removeprefix(UNSAFE_PREFIX))


def require_output(
    output: str | os.PathLike[str], *, overwrite: bool = False, resume: bool = False, append: bool = False
) -> None:
    """Raise ResultsError if `output` exists, unless the user chose what to do with its content."""
    if overwrite and (resume or append):
        raise ResultsError("`--overwrite` replaces the output and `--resume` and `--append` keep it: choose one")
    path = Path(output)
    if path.exists() and path.stat().st_size and not (overwrite or resume or append):
        raise ResultsError(
            f"the output {str(path)!r} exists.\n"
            f"hint: `--resume` adds what is missing, `--overwrite` replaces it, or choose another output"
        )


def plan_reverification(
    inputs: str | os.PathLike[str],
    rollouts: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    judge_failed_only: bool = False,
    limit: int | None = None,
    resume: bool = False,
    append: bool = False,
) -> Reverification:
    """Pair stored responses with their inputs.

    `limit`: take only so many, from the start. `resume` and `append` leave alone what the output holds.
    `judge_failed_only`: take only rollouts that failed because the judge gave no verdict, and copy the scored ones,
    unless `append` adds to an existing output.
    """
    keeps = (resume or append) and Path(output).exists()
    done = _read_keys(output) if keeps else KeySet()
    n_seeds = 0
    if judge_failed_only:
        source = RunPaths.of(os.fspath(rollouts)).failures
        found = _find_judge_failed(source, _read_keys(rollouts))
        if not (append and keeps):
            n_seeds = sum(line.key not in done for line in _read_scored(rollouts))
    else:
        source = Path(rollouts)
        found = _find_stored(source)
    offsets = {line.key: line.offset for line in read_results(inputs)}
    lost = [str(one.place) for one in found if one.key not in offsets]
    if lost:
        raise ResultsError(
            f"{len(lost)} stored responses have no row in {os.fspath(inputs)!r}: {', '.join(lost[:_MOST_NAMED])}\n"
            f"hint: give the materialized inputs of the same run as the rollouts"
        )
    todo = [one for one in found[:limit] if one.key not in done]
    return Reverification(
        source=source,
        todo=todo,
        n_done=len(done),
        n_seeds=n_seeds,
        _inputs=Path(inputs),
        _input_offsets=offsets,
        _rollouts=Path(rollouts),
        _done=done,
    )


def _find_stored(path: str | os.PathLike[str]) -> list[_Todo]:
    require_distinct(read_results(path))
    found = []
    for line in read_results(path):
        if not isinstance(line.row.get(RESPONSE_KEY_NAME), dict):
            raise ResultsError(f"{line.place}: the row holds no response that could be scored")
        found.append(_Todo(line.key, line.place, line.offset))
    return found


def _find_judge_failed(path: Path, scored: KeySet) -> list[_Todo]:
    """Return the last response without a verdict of every rollout that was never scored."""
    if not path.is_file():
        raise ResultsError(f"there is no failures file {str(path)!r}, so no failed judgment is known")
    found: dict[Key, _Todo] = {}
    for line in read_results(path):
        failed = line.row.get(NG_FAILURE_CLASS_KEY) == JUDGE_FAILED
        if failed and line.key not in scored and isinstance(line.row.get(RESPONSE_KEY_NAME), dict):
            found[line.key] = _Todo(line.key, line.place, line.offset)
    return list(found.values())


def _read_keys(path: str | os.PathLike[str]) -> KeySet:
    keys = KeySet()
    for line in read_results(path):
        keys.add(line.key)
    return keys


def _read_scored(path: str | os.PathLike[str]) -> Iterator[ResultLine]:
    return (line for line in read_results(path) if read_reward(line.row) is not None)
