# SPDX-License-Identifier: Apache-2.0
"""Code that cancels the task in which it runs, which would look as if the user had cancelled the rollout.

Servers that share the process of a run work in the tasks of the rollouts. Whoever else cancels such a task, a deadline
or the end of a run, does so while the task waits and not in one of its own steps.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

from nemo_gym.errors import HandlerExit

ResultT = TypeVar("ResultT")


async def await_without_own_cancellation(work: Awaitable[ResultT]) -> ResultT:
    """Return the result of `work`; raise HandlerExit if it has cancelled the task that awaits it."""
    watched = _WatchedSteps(work)
    try:
        result = await watched
    except asyncio.CancelledError as error:
        await _undo(watched.own_cancellations)
        if not watched.own_cancellations or watched.task.cancelling() > watched.cancelled_before:
            raise
        raise HandlerExit(f"{error!r}: it cancelled its own task").with_traceback(error.__traceback__) from error
    if watched.own_cancellations:
        await _undo(watched.own_cancellations)
        raise HandlerExit("CancelledError(): it cancelled its own task")
    return result


async def _undo(count: int) -> None:
    task = asyncio.current_task()
    assert task is not None
    for _ in range(count):
        task.uncancel()
    if count:
        # A cancellation that has not arrived yet arrives here.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


class _WatchedSteps(Generic[ResultT]):
    """Awaits `work`, and counts how often it cancels its task by itself."""

    def __init__(self, work: Awaitable[ResultT]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.cancelled_before = task.cancelling()
        self.own_cancellations = 0
        self._work = work

    def __await__(self) -> Generator[Any, Any, ResultT]:
        steps = self._work.__await__()
        thrown: BaseException | None = None
        while True:
            before = self.task.cancelling()
            try:
                waited_for = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                result: ResultT = end.value
                return result
            finally:
                self.own_cancellations += max(0, self.task.cancelling() - before)
            thrown = None
            try:
                yield waited_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                thrown = error
