# SPDX-License-Identifier: Apache-2.0
"""Run an asynchronous library that may block in an event loop of its own, in another thread.

Its rollouts wait for their models concurrently, and blocking that loop does not block the server. If the loop is still
blocked when a rollout times out, it is interrupted, or replaced if that does not help.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from fastapi import FastAPI

from nemo_gym._isolation.lent_workers import close_with_app
from nemo_gym._util.off_the_loop import LoopThread
from nemo_gym.errors import RolloutFailure

__all__ = ["LibraryBlocked", "LibraryLoop"]

LOG = logging.getLogger(__name__)
T = TypeVar("T")

_ANSWER_TIMEOUT_S = 2.0


class LibraryBlocked(BaseException):
    """Raised into library code that blocks its event loop. Not an Exception, so no library turns it into a score."""


class LibraryLoop:
    """`await loop.run(play, task)` runs the coroutine function `play` in another thread's event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: LoopThread | None = None
        self._waiting: set[Future[Any]] = set()
        self._checking = threading.Lock()

    async def run(self, fn: Callable[..., Coroutine[Any, Any, T]], /, *args: Any) -> T:
        """Run `fn(*args)` in the loop. Canceling this cancels it and makes sure that the loop is not left blocked."""
        if self._thread is None:
            self._thread = LoopThread(self._name)
        thread = self._thread
        outcome = Future[T]()
        self._waiting.add(outcome)
        outcome.add_done_callback(self._waiting.discard)
        working = thread.submit(_convert_interrupt(fn(*args)))
        working.add_done_callback(lambda done: _copy_outcome(done, outcome))
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            working.cancel()
            await asyncio.shield(asyncio.to_thread(self._unblock, thread))
            raise

    def close_with(self, app: FastAPI) -> None:
        """End the loop when `app` shuts down."""
        close_with_app(app, self.aclose)

    async def aclose(self) -> None:
        """End the loop and everything that runs in it."""
        thread = self._thread
        self._thread = None
        if thread is not None and await asyncio.to_thread(thread.is_answering, _ANSWER_TIMEOUT_S):
            await asyncio.to_thread(thread.close)

    def _unblock(self, thread: LoopThread) -> None:
        """Interrupt what blocks the loop. If that fails, fail all its rollouts and start a new loop next time."""
        with self._checking:
            if thread is not self._thread or thread.is_answering(_ANSWER_TIMEOUT_S):
                return
            thread.interrupt(LibraryBlocked)
            if thread.is_answering(_ANSWER_TIMEOUT_S):
                LOG.warning("%s: interrupted code that blocked the event loop", self._name)
                return
            LOG.error("%s: the event loop is blocked for good; replacing it", self._name)
            self._thread = None
            for outcome in [*self._waiting]:
                with contextlib.suppress(InvalidStateError):  # it has just ended
                    outcome.set_exception(_make_blocked_failure())


def _copy_outcome(done: "Future[T]", outcome: "Future[T]") -> None:
    with contextlib.suppress(InvalidStateError):  # nobody is waiting any more
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
            "the library's code blocked its event loop and was interrupted.\n"
            "hint: something computes or waits without `await`; look at the environment's own functions",
            True,
        ) from None


def _make_blocked_failure() -> RolloutFailure:
    return RolloutFailure(
        "timeout",
        "another rollout has blocked the library's event loop for good, which ended this one too.\n"
        "hint: see the server's log for what blocks it",
        True,
    )
