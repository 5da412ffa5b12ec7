# SPDX-License-Identifier: Apache-2.0
"""Run many rollouts at once: pull rows as slots free up, and turn every pulled row into one Outcome.

Only the running rollouts and a short queue of finished ones are held. The player handles attempts and deadlines; the
limiter sets the number of slots.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.outcomes import Failed, Outcome, Row
from nemo_gym._rollouts.play import name_boundary
from nemo_gym._transport.failures import Failure, build_failure

# After this many steps, everything else on the event loop gets a turn.
_STARTS_IN_A_ROW = 256
# Start more in a row as long as a turn of everything else, which includes their first steps, takes no longer than this.
_LONGEST_TURN_S = 2.0
# While more than this many wait for a slow consumer, start nothing new.
_ENDED_QUEUE = 256
# How often to ask the limiter again: its limit may grow with time alone.
_TICK_S = 0.5
_CANCEL_GRACE_S = 5.0


async def dispatch(
    rows: Iterator[Row],
    play: Callable[[Row], Coroutine[Any, Any, Outcome]],
    limiter: Limiter,
    control: RunControl,
    *,
    hold_failures_s: float = 0.0,
    cancel_grace_s: float = _CANCEL_GRACE_S,
) -> AsyncGenerator[Outcome, None]:
    """Run `rows` and yield their outcomes as they arrive.

    An error in `rows` is raised once all running rollouts have ended and were yielded. A consumer that stops early
    closes the generator (`contextlib.aclosing`), which cancels them. A rollout that ignores its cancellation for
    `cancel_grace_s` is abandoned and counts as cancelled. A failure that a dead server may explain is yielded
    `hold_failures_s` later, as cancelled if the run was given up meanwhile.
    """
    in_flight = _InFlight(limiter, control, hold_failures_s, cancel_grace_s)
    loop = asyncio.get_running_loop()
    row = None
    rows_error: Exception | None = None
    with control.call_on_change(in_flight.follow_control):
        try:
            in_flight.tick()
            while True:
                for _ in range(len(in_flight.ended)):
                    yield in_flight.ended.popleft()
                if control.is_stopping:
                    rows = iter(())
                    row = None
                has_more = len(in_flight.ended) <= _ENDED_QUEUE
                for _ in range(in_flight.starts_in_a_row if has_more else 0):
                    # Get the row before the slot: a taken slot can only be released with an outcome.
                    if row is None:
                        try:
                            row = next(rows, None)
                        except Exception as error:  # raised again once all running rollouts have ended
                            rows = iter(())
                            rows_error = error
                    if row is None or not limiter.acquire():
                        has_more = False
                        break
                    task = loop.create_task(play(row))
                    in_flight.running[task] = (row, time.monotonic())
                    task.add_done_callback(in_flight.note_end)
                    row = None
                if has_more or in_flight.ended:
                    await in_flight.yield_to_others(has_more)
                elif in_flight.running or in_flight.held or row is not None:
                    await in_flight.wait_for_event()
                else:
                    break
        finally:
            await in_flight.close()
    if rows_error is not None:
        raise rows_error


class _InFlight:
    """The running rollouts, and the finished ones that were not yielded yet."""

    def __init__(self, limiter: Limiter, control: RunControl, hold_failures_s: float, cancel_grace_s: float) -> None:
        self._limiter = limiter
        self._control = control
        self._hold_failures_s = hold_failures_s
        self._cancel_grace_s = cancel_grace_s
        self._loop = asyncio.get_running_loop()
        self._event: asyncio.Future[None] | None = None
        self._next_tick: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self.starts_in_a_row = _STARTS_IN_A_ROW
        self.running = dict[asyncio.Task[Outcome], tuple[Row, float]]()
        self.ended = deque[Outcome]()
        self.held = deque[Failed]()
        """Failures not yielded yet, in case it turns out that a server died."""

    def tick(self) -> None:
        """Ask the limiter again, now and periodically."""
        self._next_tick = self._loop.call_later(_TICK_S, self.tick)
        self._wake()

    async def yield_to_others(self, has_more: bool) -> None:
        """Give everything else on the event loop a turn; if there are more rollouts, adapt how many start per turn."""
        began = time.monotonic()
        await asyncio.sleep(0)
        took_s = time.monotonic() - began
        if took_s > _LONGEST_TURN_S:
            self.starts_in_a_row = max(_STARTS_IN_A_ROW, self.starts_in_a_row // 2)
        elif has_more and took_s < _LONGEST_TURN_S / 2:
            self.starts_in_a_row *= 2

    async def wait_for_event(self) -> None:
        """Wait until a rollout ends, the control changes, or the limit may have changed."""
        self._event = self._loop.create_future()
        await self._event

    def follow_control(self) -> None:
        """Act on the control's current state."""
        if self._control.abort_reason is not None:
            self.ended.extend(replace(failed, failure=make_cancelled(failed.row)) for failed in self.held)
            self.held.clear()
        if self._control.is_cancelling:
            self._cancel_running()
            if self._giving_up is None:
                self._giving_up = self._loop.call_later(self._cancel_grace_s, self._abandon_running)
        self._wake()

    async def close(self) -> None:
        """Stop everything that is still running."""
        for timer in (self._next_tick, self._giving_up):
            if timer is not None:
                timer.cancel()
        if self.running:
            self._cancel_running()
            await asyncio.wait(self.running, timeout=self._cancel_grace_s)

    def note_end(self, task: asyncio.Task[Outcome], *, is_abandoned: bool = False) -> None:
        """Release the slot of a rollout that has ended or is abandoned, and queue its outcome."""
        is_cancelled = is_abandoned or task.cancelled()
        error = None
        if not is_cancelled:
            error = task.exception()
        if task not in self.running:
            return  # it was abandoned before
        row, started = self.running.pop(task)
        elapsed_s = time.monotonic() - started
        if is_cancelled:
            outcome: Outcome = Failed(row, make_cancelled(row), 1, elapsed_s)
        elif error is not None:
            outcome = Failed(row, build_failure(error, "agent", name_boundary(row)), 1, elapsed_s)
        else:
            outcome = task.result()
        self._limiter.release(outcome, elapsed_s)
        if self._hold_failures_s and isinstance(outcome, Failed) and _may_be_from_dead_server(outcome):
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

    def _abandon_running(self) -> None:
        for task in [*self.running]:
            self.note_end(task, is_abandoned=True)

    def _wake(self) -> None:
        if self._event is not None and not self._event.done():
            self._event.set_result(None)


def _may_be_from_dead_server(failed: Failed) -> bool:
    """Return whether the failure may be what a server's caller sees when the server has just died."""
    failure = failed.failure
    if failed.result is not None or failure.kind in ("cancelled", "timeout", "model_reply_invalid"):
        return False
    return not failure.cause.startswith("4")  # a refusal is an answer, and a dead server gives none


def make_cancelled(row: Row) -> Failure:
    """Return the failure of a rollout that was stopped together with its run."""
    return Failure("cancelled", name_boundary(row), True, "the run was stopped while this rollout was in progress")
