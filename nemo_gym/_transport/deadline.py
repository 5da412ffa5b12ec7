# SPDX-License-Identifier: Apache-2.0
"""A deadline around a call. Calls are made inside of calls, so most find one that ends earlier than their own."""

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import TypeVar

from nemo_gym._transport.errors import ServerDeadlineExceeded

ResultT = TypeVar("ResultT")


class Deadline:
    """What `asyncio.timeout` does, at a third of its price: there are several such calls in every rollout."""

    __slots__ = ("_before", "_cancels_before", "_is_over", "_task", "_timer", "ends_at")

    def __init__(self, ends_at: float) -> None:
        """Ends what the running task does when its event loop's clock shows `ends_at`."""
        task = asyncio.current_task()
        assert task is not None
        self._task, self._is_over, self._cancels_before = task, False, task.cancelling()
        self.ends_at = ends_at
        self._timer = asyncio.get_running_loop().call_at(ends_at, self._expire)
        self._before = _innermost.set(self)

    def covers(self, ends_at: float) -> bool:
        """Whether it ends what the running task does by then. A task started inside of it is not its own to end."""
        return self.ends_at <= ends_at and self._task is asyncio.current_task() and not self._timer.cancelled()

    def has_cancelled(self) -> bool:
        """Whether a cancellation that arrives now is this deadline's, and nobody else's as well."""
        return self._is_over and self._task.cancelling() - 1 <= self._cancels_before

    def end(self) -> None:
        """Stop the clock; a cancellation of ours is taken back."""
        self._timer.cancel()
        _innermost.reset(self._before)
        if self._is_over:
            self._task.uncancel()

    def _expire(self) -> None:
        self._is_over = True
        self._task.cancel()


_innermost: ContextVar[Deadline | None] = ContextVar("nemo_gym_deadline", default=None)


async def within(timeout_s: float, method: str, url: str, work: Awaitable[ResultT]) -> ResultT:
    """The result of `work`, which is a call, unless it takes longer than `timeout_s`."""
    ends_at, outer = asyncio.get_running_loop().time() + timeout_s, _innermost.get()
    if outer is not None and outer.covers(ends_at):
        return await work
    deadline = Deadline(ends_at)
    try:
        return await work
    except asyncio.CancelledError as error:
        if deadline.has_cancelled():
            raise ServerDeadlineExceeded(method, url, timeout_s) from error
        raise
    finally:
        deadline.end()
