# SPDX-License-Identifier: Apache-2.0
"""Keep slow work off the event loop: in a thread, or in a child process that can be killed.

A thread suits work that waits; a child process suits work that computes, may hang, or may crash. Every call to
`in_process` pays for a process start, so pools for many tiny jobs are not here.
"""

import asyncio
import contextlib
import ctypes
import functools
import multiprocessing
import pickle
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, TypeVar

from nemo_gym.errors import GymError

P = ParamSpec("P")
T = TypeVar("T")


class ChildProcessDied(GymError):
    """A child process ended without an answer: it was killed, ran out of memory, or crashed."""


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


async def in_thread(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """`fn(*args, **kwargs)` in a worker thread, with the caller's context variables."""
    return await asyncio.to_thread(fn, *args, **kwargs)


async def in_process(fn: Callable[..., T], /, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> T:
    """`fn(*args, **kwargs)` in a child process of its own.

    The child is killed when `timeout_s` passes (TimeoutError) or the caller is cancelled. `fn`, its arguments and its
    result must be picklable. What `fn` raises is raised here; a child that dies raises ChildProcessDied.
    """
    receiver, process = await asyncio.to_thread(_start, fn, args, kwargs)
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await _wait_until_readable(receiver)
        except TimeoutError as error:
            raise TimeoutError(f"{_name_function(fn)} gave no answer within {timeout_s} s and was killed") from error
        return await asyncio.to_thread(_receive_outcome, receiver, process)
    finally:
        process.kill()
        receiver.close()
        await asyncio.shield(asyncio.to_thread(_reap, process))


def _start(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Connection, BaseProcess]:
    context = _choose_context()
    receiver, sender = context.Pipe(duplex=False)
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]
        target=_run_in_child, args=(sender, functools.partial(fn, *args, **kwargs)), daemon=True
    )
    process.start()
    # The child holds the only writing end, so its death shows as the end of the stream.
    sender.close()
    return receiver, process


def _choose_context() -> BaseContext:
    # A fork of a process with threads and an event loop may deadlock; the fork server forks a clean one.
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")


def _run_in_child(sender: Connection, call: Callable[[], Any]) -> None:
    try:
        answer = (True, call())
    except Exception as error:
        answer = (False, error)
    try:
        sender.send(answer)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        sender.send((False, TypeError(f"the outcome cannot be sent between processes: {answer[1]!r} ({error})")))


async def _wait_until_readable(receiver: Connection) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(receiver.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(receiver.fileno())


def _receive_outcome(receiver: Connection, process: BaseProcess) -> Any:
    try:
        succeeded, value = receiver.recv()
    except (EOFError, OSError) as error:
        process.join(timeout=5)
        raise ChildProcessDied(f"a child process ended without an answer (exit code {process.exitcode})") from error
    if succeeded:
        return value
    raise value


def _reap(process: BaseProcess) -> None:
    process.join()
    process.close()


def _name_function(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", repr(fn))
