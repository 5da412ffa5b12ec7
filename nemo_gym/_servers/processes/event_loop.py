# SPDX-License-Identifier: Apache-2.0
"""Run a program on an event loop that it shares with servers, whose code may try to end the process."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from nemo_gym._transport.failures import describe_error_with_place
from nemo_gym.errors import HandlerExit

LOG = logging.getLogger(__name__)
T = TypeVar("T")


class SignalInterrupt(KeyboardInterrupt):
    """A signal asks this process to end, as Ctrl-C does."""


def run_beside_servers(
    main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> T:
    """Run `main` to its end, as `asyncio.run` does, on uvloop unless told otherwise.

    SystemExit and KeyboardInterrupt of any other task stop an event loop. Here they are logged, and the loop goes on:
    whoever waits for that task gets the exception.
    """
    with asyncio.Runner(loop_factory=loop_factory or make_shared_loop) as runner:
        task = runner.get_loop().create_task(main)
        while not task.done():
            try:
                runner.run(_wait_for(task))
            except (SystemExit, KeyboardInterrupt) as raised:
                # Ctrl-C cancels `task` first.
                if task.done() or task.cancelling() or isinstance(raised, SignalInterrupt):
                    raise
                LOG.error(
                    "a task of a server in this process raised %s; it ends, and all else goes on",
                    describe_error_with_place(raised),
                )
        return task.result()


def make_shared_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that no task can stop: a task that tries gets an error, and everything else goes on."""
    import uvloop

    class SharedLoop(uvloop.Loop):
        def stop(self) -> None:
            if asyncio.current_task(self) is not None:
                raise HandlerExit("loop.stop()")
            super().stop()

    return SharedLoop()


async def _wait_for(task: asyncio.Task[Any]) -> None:
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))
        raise


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does; only the main thread can have it so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise SignalInterrupt

    # What is ignored stays ignored: `nohup` means it.
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
