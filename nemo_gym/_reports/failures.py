# SPDX-License-Identifier: Apache-2.0
"""Failures by kind, from the file that is shown and from the failures file beside it, with a few messages of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym._reports.errors import ReportError
from nemo_gym._reports.facts import FAILED, SCORED
from nemo_gym._reports.index import Index
from nemo_gym._util.keys import FAILURE_KEY, NG_FAILURE_JUDGE_ERROR_KEY

_ROWS_SHOWN = 20
_EXAMPLES = 3
_MESSAGE_LENGTH = 300

Key = tuple[int, int]


@dataclass(frozen=True)
class FailureCount:
    """The failures of one kind in one file."""

    kind: str
    count: int
    n_unresolved: int
    """Rollouts among them that have no reward from another attempt either."""
    examples: list[str]
    rows: list[int]
    """The first of them."""
    in_failures_file: bool
    """The rows are those of the failures file, not of the file that is shown."""


def count_failures(index: Index, failures: Index | None) -> list[FailureCount]:
    """The commonest kind first."""
    counted: list[FailureCount] = []
    for source, beside in ((index, False), (failures, True)):
        if source is not None:
            by_kind = _rows_by_kind(source)
            unresolved = _unresolved(index, source, by_kind)
            counted += [
                FailureCount(
                    kind, len(rows), unresolved[kind], _examples(source, rows), list(rows[:_ROWS_SHOWN]), beside
                )
                for kind, rows in by_kind.items()
            ]
    return sorted(counted, key=lambda one: (-one.count, one.kind))


def failed_rollouts(index: Index, failures: Index | None) -> set[tuple[str, int, int]]:
    """Return agent, task and rollout index of every rollout that failed and has no reward from another attempt."""
    failed = {key for source in (index, failures) if source is not None for key in _keys(source, FAILED)}
    return failed.difference(_keys(index, SCORED)) if failed else failed


def _keys(index: Index, flag: int) -> Iterator[tuple[str, int, int]]:
    columns = index.columns
    for row in range(columns.n_rows):
        if columns.flags[row] & flag:
            yield columns.agents[columns.agent[row]], columns.task[row], columns.rollout[row]


def message_of(row: Mapping[str, Any]) -> str:
    """What a failed row says went wrong."""
    failure = row.get(FAILURE_KEY)
    message = failure.get("message") if isinstance(failure, dict) else None
    message = message or row.get(NG_FAILURE_JUDGE_ERROR_KEY)
    return message if isinstance(message, str) else ""


def _rows_by_kind(index: Index) -> dict[str, list[int]]:
    columns = index.columns
    found: dict[str, list[int]] = {}
    for row in range(columns.n_rows):
        if columns.flags[row] & FAILED:
            found.setdefault(columns.failures[columns.failure[row]], []).append(row)
    return found


def _unresolved(index: Index, source: Index, by_kind: Mapping[str, list[int]]) -> dict[str, int]:
    """How many rollouts of each kind were never scored."""
    failed = source.columns
    keys = {kind: {(failed.task[row], failed.rollout[row]) for row in rows} for kind, rows in by_kind.items()}
    open_keys: set[Key] = set().union(*keys.values())
    columns = index.columns
    if open_keys:
        scored = (row for row in range(columns.n_rows) if columns.flags[row] & SCORED)
        open_keys.difference_update([(columns.task[row], columns.rollout[row]) for row in scored])
    return {kind: len(of_kind & open_keys) for kind, of_kind in keys.items()}


def _examples(index: Index, rows: list[int]) -> list[str]:
    messages: dict[str, None] = {}
    for row in rows[:_ROWS_SHOWN]:
        try:
            message = message_of(index.read(row))
        except ReportError:
            continue
        if message:
            messages[message[:_MESSAGE_LENGTH]] = None
    return list(messages)[:_EXAMPLES]
