# SPDX-License-Identifier: Apache-2.0
"""Many rollouts at once: rows are pulled as slots free up, and every row that was pulled comes out as one Outcome.

Nothing is held but what runs and a short queue of what just ended. Attempts and deadlines are the player's business,
the number of slots is the limiter's.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.play import name_boundary
from nemo_gym._rollouts.types import Failed, Outcome, Row
from nemo_gym._transport.failures import Failure, build_failure

Play = Callable[[Row], Coroutine[Any, Any, Outcome]]

# After so many steps everything else on the event loop gets its turn.
_STARTS_IN_A_ROW = 256
# More are started in a row while a turn of everything else, which begins with their first steps, takes no longer.
_LONGEST_TURN_S = 2.0
# While more than this wait for a slow consumer, nothing new is started.
_ENDED_QUEUE = 256
# A limiter may grow with time alone; so often it is asked again.
_TICK_S = 0.5
_CANCEL_GRACE_S = 5.0


async def dispatch(
    rows: Iterator[Row],
    play: Play,
    limiter: Limiter,
    control: RunControl,
    *,
    hold_failures_s: float = 0.0,
    cancel_grace_s: float = _CANCEL_GRACE_S,
) -> AsyncGenerator[Outcome, None]:
    """Play `rows` and yield their outcomes as they come.

    An error of `rows` is raised once everything that runs has ended and was yielded. A consumer that stops early
    closes the generator (`contextlib.aclosing`), which cancels what runs. A rollout that does not heed its
    cancellation for `cancel_grace_s` is left behind, as cancelled. A failure that a dead server may explain is yielded
    `hold_failures_s` later, and as cancelled if the run was given up meanwhile.
    """
    under_way = _UnderWay(limiter, control, hold_failures_s, cancel_grace_s)
    loop, row = asyncio.get_running_loop(), None
    rows_error: Exception | None = None
    with control.call_on_change(under_way.follow_control):
        try:
            under_way.tick()
            while True:
                for _ in range(len(under_way.ended)):
                    yield under_way.ended.popleft()
                if control.is_stopping:
                    rows, row = iter(()), None
                has_more = len(under_way.ended) <= _ENDED_QUEUE
                for _ in range(under_way.starts_in_a_row if has_more else 0):
                    # The row comes before the slot: a slot that was taken can only be given back with an outcome.
                    if row is None:
                        try:
                            row = next(rows, None)
                        except Exception as error:  # raised again when all that runs has ended
                            rows, rows_error = iter(()), error
                    if row is None or not limiter.acquire():
                        has_more = False
                        break
                    task = loop.create_task(play(row))
                    under_way.running[task] = (row, time.monotonic())
                    task.add_done_callback(under_way.note_end)
                    row = None
                if has_more or under_way.ended:
                    await under_way.yield_to_others(has_more)
                elif under_way.running or under_way.held or row is not None:
                    await under_way.wait_for_event()
                else:
                    break
        finally:
            await under_way.close()
    if rows_error is not None:
        raise rows_error


class _UnderWay:
    """The rollouts that run, and those that ended and were not yielded yet."""

    def __init__(self, limiter: Limiter, control: RunControl, hold_failures_s: float, cancel_grace_s: float) -> None:
        self._limiter, self._control = limiter, control
        self._hold_failures_s, self._cancel_grace_s = hold_failures_s, cancel_grace_s
        self._loop = asyncio.get_running_loop()
        self._event: asyncio.Future[None] | None = None
        self._next_tick: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self.starts_in_a_row = _STARTS_IN_A_ROW
        self.running = dict[asyncio.Task[Outcome], tuple[Row, float]]()
        self.ended = deque[Outcome]()
        self.held = deque[Failed]()
        """Failures that are still to be told, unless it turns out that a server had died."""

    def tick(self) -> None:
        """Ask the limiter again, now and from time to time."""
        self._next_tick = self._loop.call_later(_TICK_S, self.tick)
        self._wake()

    async def yield_to_others(self, has_more: bool) -> None:
        """Let everything else on the event loop have its turn; if there is more to start, as much of it as may be."""
        began = time.monotonic()
        await asyncio.sleep(0)
        took_s = time.monotonic() - began
        if took_s > _LONGEST_TURN_S:
            self.starts_in_a_row = max(_STARTS_IN_A_ROW, self.starts_in_a_row // 2)
        elif has_more and took_s < _LONGEST_TURN_S / 2:
            self.starts_in_a_row *= 2

    async def wait_for_event(self) -> None:
        """Wait until something ends, the control changes, or the limiter may have changed its mind."""
        self._event = self._loop.create_future()
        await self._event

    def follow_control(self) -> None:
        """Act on what the control says now."""
        if self._control.abort_reason is not None:
            self.ended.extend(replace(failed, failure=make_cancelled(failed.row)) for failed in self.held)
            self.held.clear()
        if self._control.is_cancelling:
            self._cancel_running()
            if self._giving_up is None:
                self._giving_up = self._loop.call_later(self._cancel_grace_s, self._give_up_running)
        self._wake()

    async def close(self) -> None:
        """Leave nothing running behind."""
        for timer in (self._next_tick, self._giving_up):
            if timer is not None:
                timer.cancel()
        if self.running:
            self._cancel_running()
            await asyncio.wait(self.running, timeout=self._cancel_grace_s)

    def note_end(self, task: asyncio.Task[Outcome], *, is_left_behind: bool = False) -> None:
        """Give back the slot of a rollout that has ended, or is left behind, and queue its outcome."""
        error = None if is_left_behind or task.cancelled() else task.exception()
        if task not in self.running:
            return  # it was left behind before
        row, started = self.running.pop(task)
        elapsed_s = time.monotonic() - started
        if is_left_behind or task.cancelled():
            outcome: Outcome = Failed(row, make_cancelled(row), 1, elapsed_s)
        elif error is not None:
            outcome = Failed(row, build_failure(error, "agent", name_boundary(row)), 1, elapsed_s)
        else:
            outcome = task.result()
        self._limiter.release(outcome, elapsed_s)
        if self._hold_failures_s and isinstance(outcome, Failed) and _may_come_of_a_dead_server(outcome):
            self.held.append(outcome)
            self._loop.call_later(self._hold_failures_s, self._release_held)
            return
        self.ended.append(outcome)
        self._wake()

    def _release_held(self) -> None:
        if self.held:
            self.ended.append(self.held.popleft())
            self._wake()

    def _cancel_running(self) -> None:
        for task in self.running:
            task.cancel()

    def _give_up_running(self) -> None:
        for task in [*self.running]:
            self.note_end(task, is_left_behind=True)

    def _wake(self) -> None:
        if self._event is not None and not self._event.done():
            self._event.set_result(None)


def _may_come_of_a_dead_server(failed: Failed) -> bool:
    """Return whether the failure may be what a caller of a server sees when that server has just died."""
    failure = failed.failure
    if failed.result is not None or failure.kind in ("cancelled", "timeout", "model_reply_invalid"):
        return False
    return not failure.cause.startswith("4")  # a refusal is an answer, and the dead give none


def make_cancelled(row: Row) -> Failure:
    """Return the failure of a rollout that was stopped together with its run."""
    return Failure("cancelled", name_boundary(row), True, "the run was stopped while this rollout was under way")
