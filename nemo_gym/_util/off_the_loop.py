# SPDX-License-Identifier: Apache-2.0
"""Event loops and threads: a loop in a thread of its own, results as they finish, an exception raised in a thread."""

import asyncio
import contextlib
import ctypes
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class AsFinished(Iterator[Awaitable[T]]):
    """Yields awaitables as `asyncio.as_completed` does, and cancels what is left once nobody can await it any more.

    That is when this object and all awaitables that it has yielded are gone: whoever waited was cancelled or gave up.
    """

    def __init__(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> None:
        self._coroutines = coroutines
        self._tasks: list[asyncio.Task[T]] = []
        self._finished: Iterator[Awaitable[T]] | None = None

    def __next__(self) -> Awaitable[T]:
        if self._finished is None:
            self._tasks = [asyncio.ensure_future(one) for one in self._coroutines]
            self._finished = iter(asyncio.as_completed(self._tasks))
        return self._await(next(self._finished))

    async def _await(self, finished: Awaitable[T]) -> T:
        return await finished  # holds on to `self` meanwhile

    def __del__(self) -> None:
        left = [task for task in self._tasks if not task.done()]
        loop = left[0].get_loop() if left else None
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in left])


class LoopThread:
    """An event loop in a thread of its own, for callers that have none or must not use theirs."""

    def __init__(self, name: str, at_end: Callable[[], Awaitable[None]] | None = None) -> None:
        """`at_end` is called on the loop when nothing runs on it any more."""
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._at_end = at_end
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        await self._closing.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._at_end is not None:
            await self._at_end()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin `work` on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it; interrupting the wait cancels the work."""
        future = self.submit(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def is_answering(self, timeout_s: float) -> bool:
        """Wait until the loop does something new, and return whether it did so in time."""
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        return answered.wait(timeout_s)

    def interrupt(self, error: type[BaseException]) -> None:
        """Raise `error` in what the thread executes, with its next step in Python."""
        interrupt_thread(self._thread, error)

    def close(self) -> None:
        """Cancel what is under way on the loop, and end the thread; idempotent."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop closed between the two lines
                self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()


def interrupt_thread(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise `error` in what `thread` executes, with its next step in Python; nothing happens if it has ended."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))
