# SPDX-License-Identifier: Apache-2.0
"""A deadline around a call. Calls are made inside of calls, so most find one that ends earlier than their own."""

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import TypeVar
from weakref import WeakKeyDictionary

from nemo_gym._transport.errors import ServerDeadlineExceeded

ResultT = TypeVar("ResultT")

# Deadlines that are further away than this may come up to a second late, and so share their timers.
_FAR_S = 10.0


class Deadline:
    """What `asyncio.timeout` does, at a fraction of its price: there are several such calls in every rollout."""

    __slots__ = ("_alarm", "_before", "_cancels_before", "_has_ended", "_is_over", "_task", "ends_at")

    def __init__(self, ends_at: float) -> None:
        """Ends what the running task does when its event loop's clock shows `ends_at`."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._is_over, self._cancels_before = task, False, task.cancelling()
        self.ends_at, self._has_ended = ends_at, False
        self._alarm: asyncio.TimerHandle | set[Deadline]
        if ends_at - loop.time() > _FAR_S:
            self._alarm = _shared_alarm(loop, ends_at)
            self._alarm.add(self)
        else:
            self._alarm = loop.call_at(ends_at, self.expire)
        self._before = _innermost.set(self)

    def covers(self, ends_at: float) -> bool:
        """Whether it ends what the running task does by then. A task started inside of it is not its own to end."""
        return self.ends_at <= ends_at and not self._has_ended and self._task is asyncio.current_task()

    def has_cancelled(self) -> bool:
        """Whether a cancellation that arrives now is this deadline's, and nobody else's as well."""
        return self._is_over and self._task.cancelling() - 1 <= self._cancels_before

    def end(self) -> None:
        """Stop the clock; a cancellation of ours is taken back."""
        self._has_ended = True
        if isinstance(self._alarm, set):
            self._alarm.discard(self)
        else:
            self._alarm.cancel()
        _innermost.reset(self._before)
        if self._is_over:
            self._task.uncancel()

    def expire(self) -> None:
        """Its time has come."""
        self._is_over = True
        self._task.cancel()


_innermost: ContextVar[Deadline | None] = ContextVar("nemo_gym_deadline", default=None)
_alarms: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, set[Deadline]]] = WeakKeyDictionary()


def _shared_alarm(loop: asyncio.AbstractEventLoop, ends_at: float) -> set[Deadline]:
    """The deadlines that expire in the same second, rounded up, of a loop's clock."""
    alarms, second = _alarms.setdefault(loop, {}), int(ends_at) + 1
    alarm = alarms.get(second)
    if alarm is None:
        alarm = alarms[second] = set()
        loop.call_at(second, _ring, alarms, second)
    return alarm


def _ring(alarms: dict[int, set[Deadline]], second: int) -> None:
    for deadline in alarms.pop(second):
        deadline.expire()


def is_covered(timeout_s: float) -> bool:
    """Whether what the running task does ends within `timeout_s` anyway, by the deadline of a call around it."""
    outer = _innermost.get()
    return outer is not None and outer.covers(asyncio.get_running_loop().time() + timeout_s)


async def within(timeout_s: float, method: str, url: str, work: Awaitable[ResultT]) -> ResultT:
    """The result of `work`, which is a call, unless it takes longer than `timeout_s`."""
    if is_covered(timeout_s):
        return await work
    deadline = Deadline(asyncio.get_running_loop().time() + timeout_s)
    try:
        return await work
    except asyncio.CancelledError as error:
        if deadline.has_cancelled():
            raise ServerDeadlineExceeded(method, url, timeout_s) from error
        raise
    finally:
        deadline.end()
