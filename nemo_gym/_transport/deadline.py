# SPDX-License-Identifier: Apache-2.0
"""Deadlines around calls, and how a server in another process learns of its caller's deadline.

Calls are nested, so most find a deadline that ends earlier than their own.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from nemo_gym._transport.call_errors import ServerDeadlineExceeded

ResultT = TypeVar("ResultT")

SECONDS_LEFT_HEADER = "x-nemo-gym-seconds-left"
"""Tells a server in another process when its caller gives up."""
_SECONDS_LEFT = SECONDS_LEFT_HEADER.encode()
# Deadlines further away than this may fire up to a second late, and so share their timers.
_FAR_S = 10.0


class Deadline:
    """Like `asyncio.timeout`, at a fraction of the cost: every rollout makes several such calls."""

    __slots__ = ("_alarm", "_before", "_cancels_before", "_has_ended", "_is_over", "_task", "_timer", "ends_at")

    def __init__(self, ends_at: float) -> None:
        """End what the running task does when its event loop's clock reaches `ends_at`."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._is_over = False
        self._cancels_before = task.cancelling()
        self.ends_at = ends_at
        self._has_ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._alarm: set[Deadline] | None = None
        if ends_at - loop.time() > _FAR_S:
            self._alarm = _find_alarm(loop, int(ends_at) + 1)
            self._alarm.add(self)
        else:
            self._timer = loop.call_at(ends_at, self.expire)
        self._before = _innermost.set(self)

    def has_cancelled(self) -> bool:
        """Return whether a cancellation that arrives now is this deadline's, and nobody else's as well."""
        return self._is_over and self._task.cancelling() - 1 <= self._cancels_before

    def end(self) -> None:
        """Stop the clock; undo our own cancellation."""
        self._has_ended = True
        if self._alarm is not None:
            self._alarm.discard(self)
            if not self._alarm:
                self._alarm.clear()  # an empty set keeps the memory of all that it ever held
        elif self._timer is not None:
            self._timer.cancel()
        _innermost.reset(self._before)
        if self._is_over:
            self._task.uncancel()

    def expire(self) -> None:
        """Cancel the task: its time is up."""
        self._is_over = True
        self._task.cancel()


_innermost: ContextVar[Deadline | None] = ContextVar("nemo_gym_deadline", default=None)
CALLERS_END: ContextVar[float | None] = ContextVar("nemo_gym_callers_end", default=None)
"""When, by the event loop's clock, a caller in another process gives up."""


def find_earliest_end() -> float | None:
    """Return when the first of all callers waiting for the running call gives up; None if none does."""
    ends = [] if (callers := CALLERS_END.get()) is None else [callers]
    deadline = _innermost.get()
    while deadline is not None:
        if not deadline._has_ended:
            ends.append(deadline.ends_at)
        outer = deadline._before.old_value
        deadline = outer if isinstance(outer, Deadline) else None
    return min(ends, default=None)


def add_seconds_left(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return `headers` with the time that the callers of the running call will still wait, if limited."""
    end = find_earliest_end()
    if end is None:
        return headers
    return {**(headers or {}), SECONDS_LEFT_HEADER: f"{end - asyncio.get_running_loop().time():.3f}"}


def read_seconds_left(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """Return how long the caller waits, if it says so, and remember that deadline for the running task."""
    for name, value in headers:
        if name == _SECONDS_LEFT:
            with suppress(ValueError):
                left_s = float(value)
                CALLERS_END.set(asyncio.get_running_loop().time() + left_s)
                return left_s
            break
    return None


class _Alarms:
    """The far-away deadlines of one event loop, by the second, rounded up, in which they expire."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)
        self.by_second = dict[int, set[Deadline]]()

    def ring(self, second: int) -> None:
        for deadline in self.by_second.pop(second):
            deadline.expire()


_all_alarms: WeakKeyDictionary[asyncio.AbstractEventLoop, _Alarms] = WeakKeyDictionary()
_last_alarms: _Alarms | None = None


def _find_alarm(loop: asyncio.AbstractEventLoop, second: int) -> set[Deadline]:
    """Return the deadlines that expire in the same second of a loop's clock."""
    global _last_alarms
    alarms = _last_alarms
    if alarms is None or alarms.loop() is not loop:  # there is usually one loop, and a dict with weak keys is slow
        alarms = _last_alarms = _all_alarms.get(loop) or _all_alarms.setdefault(loop, _Alarms(loop))
    alarm = alarms.by_second.get(second)
    if alarm is None:
        alarm = alarms.by_second[second] = set()
        loop.call_at(second, alarms.ring, second)
    return alarm


def open_deadline(timeout_s: float) -> Deadline | None:
    """Return a deadline for a call of the running task; the caller must end it.

    None if the deadline of an enclosing call comes first. A call in another task does not count: its deadline does not
    end a task that was started inside it.
    """
    loop = asyncio.get_running_loop()
    outer = _innermost.get()
    ends_at = loop.time() + timeout_s
    if outer is None or outer._has_ended or outer.ends_at > ends_at or outer._task is not asyncio.current_task(loop):
        return Deadline(ends_at)
    return None


async def await_within(timeout_s: float, method: str, url: str, work: Awaitable[ResultT]) -> ResultT:
    """Return the result of `work`, a call; raise ServerDeadlineExceeded if it takes longer than `timeout_s`."""
    deadline = open_deadline(timeout_s)
    try:
        return await work
    except asyncio.CancelledError as error:
        if deadline is not None and deadline.has_cancelled():
            raise ServerDeadlineExceeded(method, url, timeout_s) from error
        raise
    finally:
        if deadline is not None:
            deadline.end()
