# SPDX-License-Identifier: Apache-2.0
"""The words of the rollout engine: a row to play, and the two ways in which playing it can end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nemo_gym._util.row_keys import CARRIED_KEYS, ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME

if TYPE_CHECKING:  # a network client comes with it, and most of those who read rows need none
    from nemo_gym._transport.errors import ServerResponseError
    from nemo_gym._transport.failures import Failure

Row = dict[str, Any]
Key = tuple[int, int]
"""Task index and rollout index: what a rollout is known by."""


def key_of(row: Row) -> Key:
    """Return the key of a materialized row or of a result."""
    return row[TASK_INDEX_KEY_NAME], row[ROLLOUT_INDEX_KEY_NAME]


def pick_carried_fields(row: Row) -> Row:
    """Return what the result of `row` takes over from it."""
    return {key: row[key] for key in CARRIED_KEYS if key in row}


@dataclass(frozen=True)
class Scored:
    """A rollout that ended with a reward."""

    row: Row
    result: Row
    """What the agent returned, with the fields that are carried over from the row in it."""
    attempts: int
    elapsed_s: float
    line: bytes | None = None
    """Its line in the journal, where another process has made it; `result` is then without its bulk."""


@dataclass(frozen=True)
class Failed:
    """A rollout that ended without one."""

    row: Row
    failure: "Failure"
    attempts: int
    elapsed_s: float
    result: Row | None = None
    """What the agent returned, where it returned something that says of itself that it failed."""
    terminal: bool = False
    """It is never to be tried again."""
    persist: bool = True
    """It is to be recorded."""
    error_reply: "ServerResponseError | None" = None
    """What the agent's server answered, where it answered with an error status."""


Outcome = Scored | Failed

OnRetry = Callable[["Failure"], None]
"""Hears how an attempt failed that is not the last one of its rollout."""
