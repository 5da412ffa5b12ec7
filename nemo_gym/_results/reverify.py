# SPDX-License-Identifier: Apache-2.0
"""Score stored responses again: which ones, with what input, into which file.

Only files are read here. Calling the verifiers and recording what they say is left to the caller.
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
    """What a verifier is asked."""

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
    """What is to be scored again."""

    source: Path
    """The file with the stored responses: the rollouts, or the failures where only failed judgements are redone."""
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
        """What the output holds in the end, if all goes well."""
        return self.n_done + self.n_seeds + len(self.todo)

    def seeds(self) -> Iterator[Row]:
        """Yield the rollouts to copy, before anything is scored."""
        if self.n_seeds:
            yield from (line.row for line in _read_scored(self._rollouts) if line.key not in self._done)

    def payloads(self) -> Iterator[Payload]:
        """Yield what is to be scored, in the order of the source."""
        with open_results(self.source, _BUFFER_BYTES) as source, open_results(self._inputs, _BUFFER_BYTES) as inputs:
            for key, place, offset in self.todo:
                source.seek(offset)
                inputs.seek(self._input_offsets[key])
                stored = loads_line(source.readline(), place.path, place.line)
                row = loads_line(inputs.readline(), self._inputs, 0)
                kept = {name: stored[name] for name in (RESPONSE_KEY_NAME, *RESPONSE_FACTS) if name in stored}
                yield Payload(key, read_agent_name(row), {**row, **kept})


def choose_output(output: str | os.PathLike[str], reverify_modes: Mapping[str, str], *, force: bool = False) -> Path:
    """Return where the new scores go, given what each resources server says of its `reverify_mode`.

    A server that is not stateless may score a stored response differently than it did in its session, so that takes
    `force`, and the name of the output tells.
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
    return path if path.name.startswith(UNSAFE_PREFIX) else path.with_name(UNSAFE_PREFIX + path.name)


def require_output(
    output: str | os.PathLike[str], *, overwrite: bool = False, resume: bool = False, append: bool = False
) -> None:
    """Raise unless `output` may be written: it is new, or the user said what to do with what is there."""
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

    `limit`: only the first so many. `resume` and `append`: what the output holds is left alone. `judge_failed_only`:
    only rollouts that failed because the judge gave no verdict; the scored ones are copied, unless `append` finds an
    output to add to.
    """
    keeps = (resume or append) and Path(output).exists()
    done = _read_keys(output) if keeps else KeySet()
    source = RunPaths.of(os.fspath(rollouts)).failures if judge_failed_only else Path(rollouts)
    found = _find_judge_failed(source, _read_keys(rollouts)) if judge_failed_only else _find_stored(source)
    offsets = {line.key: line.offset for line in read_results(inputs)}
    lost = [str(one.place) for one in found if one.key not in offsets]
    if lost:
        raise ResultsError(
            f"{len(lost)} stored responses have no row in {os.fspath(inputs)!r}: {', '.join(lost[:_MOST_NAMED])}\n"
            f"hint: give the materialized inputs of the same run as the rollouts"
        )
    todo = [one for one in found[:limit] if one.key not in done]
    copies = judge_failed_only and not (append and keeps)
    return Reverification(
        source=source,
        todo=todo,
        n_done=len(done),
        n_seeds=sum(line.key not in done for line in _read_scored(rollouts)) if copies else 0,
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
    """Return the last answer without a verdict of the judge, of every rollout that was not scored later."""
    if not path.is_file():
        raise ResultsError(f"there is no failures file {str(path)!r}, so no failed judgement is known")
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
