# SPDX-License-Identifier: Apache-2.0
"""An event loop in a thread of its own, for an asynchronous library whose code cannot be trusted not to block.

Rollouts of the library wait for their models side by side there, and what blocks that loop does not block the server. A
loop that is still blocked when a rollout's time is over is interrupted, or left behind if that does not help.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from fastapi import FastAPI

from nemo_gym._execution.workers import close_with_app
from nemo_gym._util.aio import LoopThread
from nemo_gym.errors import RolloutFailure

__all__ = ["LibraryBlocked", "LibraryLoop"]

LOG = logging.getLogger(__name__)
T = TypeVar("T")

_ANSWER_S = 2.0


class LibraryBlocked(BaseException):
    """Raised into library code that has blocked its event loop. No Exception: no library is to make a score of it."""


class LibraryLoop:
    """`await loop.run(play, task)` runs the coroutine function `play` in the loop of another thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: LoopThread | None = None
        self._waiting: set[Future[Any]] = set()
        self._checking = threading.Lock()

    async def run(self, fn: Callable[..., Coroutine[Any, Any, T]], /, *args: Any) -> T:
        """Run `fn(*args)` there. Cancelling this cancels it, and sees to it that the loop goes on."""
        if self._thread is None:
            self._thread = LoopThread(self._name)
        thread, outcome = self._thread, Future[T]()
        self._waiting.add(outcome)
        outcome.add_done_callback(self._waiting.discard)
        working = thread.submit(_convert_interrupt(fn(*args)))
        working.add_done_callback(lambda done: _copy_outcome(done, outcome))
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            working.cancel()
            await asyncio.shield(asyncio.to_thread(self._free, thread))
            raise

    def close_with(self, app: FastAPI) -> None:
        """End the loop when `app` shuts down."""
        close_with_app(app, self.aclose)

    async def aclose(self) -> None:
        """End the loop, and what runs in it."""
        thread, self._thread = self._thread, None
        if thread is not None and await asyncio.to_thread(thread.is_answering, _ANSWER_S):
            await asyncio.to_thread(thread.close)

    def _free(self, thread: LoopThread) -> None:
        """Interrupt what blocks the loop; if that is in vain, fail all that waits for it and have a new one."""
        with self._checking:
            if thread is not self._thread or thread.is_answering(_ANSWER_S):
                return
            thread.interrupt(LibraryBlocked)
            if thread.is_answering(_ANSWER_S):
                LOG.warning("%s: code that blocked the event loop was interrupted", self._name)
                return
            LOG.error("%s: something blocks its event loop and will not end; going on with another one", self._name)
            self._thread = None
            for outcome in [*self._waiting]:
                with contextlib.suppress(InvalidStateError):  # it ended in this moment
                    outcome.set_exception(_blame_other())


def _copy_outcome(done: "Future[T]", outcome: "Future[T]") -> None:
    with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
        if done.cancelled():
            outcome.cancel()
        elif (error := done.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())


async def _convert_interrupt(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except LibraryBlocked:
        raise RolloutFailure(
            "timeout",
            "code of the library blocked its event loop until it was interrupted.\n"
            "hint: it computes or waits without awaiting; look at the environment's own functions",
            True,
        ) from None


def _blame_other() -> RolloutFailure:
    return RolloutFailure(
        "timeout",
        "another rollout has blocked the library's event loop for good, and this one with it.\n"
        "hint: look in the log of the server for what blocks it",
        True,
    )
