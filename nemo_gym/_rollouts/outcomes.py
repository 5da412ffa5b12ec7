# SPDX-License-Identifier: Apache-2.0
"""The types of the rollout engine: a row to run, and the two ways it can end."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nemo_gym._util.row_keys import CARRIED_KEYS, ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME

if TYPE_CHECKING:  # it imports a network client, which most readers of rows do not need
    from nemo_gym._transport.call_errors import ServerResponseError
    from nemo_gym._transport.failures import Failure

Row = dict[str, Any]
Key = tuple[int, int]
"""Task index and rollout index: the identity of a rollout."""


def key_of(row: Row) -> Key:
    """Return the key of a materialized row or of a result."""
    return row[TASK_INDEX_KEY_NAME], row[ROLLOUT_INDEX_KEY_NAME]


def pick_carried_fields(row: Row) -> Row:
    """Return the fields of `row` that its result takes over."""
    return {key: row[key] for key in CARRIED_KEYS if key in row}


@dataclass(frozen=True)
class Scored:
    """A rollout that ended with a reward."""

    row: Row
    result: Row
    """What the agent returned, including the fields taken over from the row."""
    attempts: int
    elapsed_s: float
    line: bytes | None = None
    """Its line in the journal if another process made it; `result` is then without its bulk."""


@dataclass(frozen=True)
class Failed:
    """A rollout that ended without a reward."""

    row: Row
    failure: "Failure"
    attempts: int
    elapsed_s: float
    result: Row | None = None
    """What the agent returned, if it returned a result that says it failed."""
    terminal: bool = False
    """Whether it must never be tried again."""
    persist: bool = True
    """Whether it should be recorded."""
    error_reply: "ServerResponseError | None" = None
    """What the agent's server answered, if it was an error status."""


Outcome = Scored | Failed

OnRetry = Callable[["Failure"], None]
"""Called with the failure of an attempt that is not the last one of its rollout."""
Play = Callable[[Row, OnRetry], Coroutine[Any, Any, Outcome]]
"""Runs a row, in this process or by a worker."""
