# SPDX-License-Identifier: Apache-2.0
"""The thread that watches an event loop: what it interrupts, what it leaves alone, and whose signals it hears."""

import asyncio
import math
import os
import signal
import threading
import time
from contextlib import contextmanager

import pytest

from nemo_gym._servers.direct_calls.running_apps import NamedApp
from nemo_gym._servers.processes.loop_watch import LoopWatch
from nemo_gym.errors import ServerBlocked


class Heard:
    """A watch, and what it has told."""

    def __init__(self, most_blocked_s: float = math.inf, named_after_s: float = math.inf) -> None:
        self.signals, self.blockages, self.is_told = [], [], threading.Event()
        self.watch = LoopWatch(
            on_signal=self.signals.append,
            on_blocked=self.note,
            on_stuck=self.note,
            named_after_s=lambda: named_after_s,
            most_blocked_s=lambda: most_blocked_s,
        )

    def note(self, blockage) -> None:
        self.blockages.append(blockage)
        self.is_told.set()

    @contextmanager
    def watching(self, *signals):
        with self.watch.watch(signals):
            yield self


def block(until, most_s: float) -> None:
    """Block the event loop until a condition holds, but not for ever."""
    deadline = time.monotonic() + most_s
    while not until() and time.monotonic() < deadline:
        time.sleep(0.01)


async def serve(handler) -> None:
    async def app(scope, receive, send):
        handler()

    await NamedApp(app, "slow")({}, None, None)


async def test_server_code_that_blocks_for_too_long_is_interrupted_and_explains_who_is_late():
    with Heard(most_blocked_s=0.1).watching() as heard:
        await asyncio.sleep(0)
        with pytest.raises(ServerBlocked, match=r"server 'slow' blocked the event loop for .* in <lambda>, .*sleep"):
            await serve(lambda: time.sleep(60))
        assert "'slow' blocked the event loop" in heard.watch.explain_lateness(60)
        assert heard.watch.explain_lateness(0) is None


async def test_server_code_that_blocks_is_named_and_otherwise_left_alone():
    with Heard(named_after_s=0.1).watching() as heard:
        await serve(lambda: heard.is_told.wait(300))
    assert [blockage.server for blockage in heard.blockages] == ["slow"]


async def test_what_blocks_outside_of_servers_is_not_torn():
    with Heard(most_blocked_s=0.0, named_after_s=0.0).watching() as heard:
        block(lambda: False, 0.8)
        await asyncio.sleep(0)
    assert heard.blockages == []


async def test_signals_are_heard_while_the_loop_is_blocked_and_given_back_afterwards():
    before = signal.getsignal(signal.SIGUSR1)
    with Heard().watching(signal.SIGUSR1) as heard:
        os.kill(os.getpid(), signal.SIGUSR1)
        block(lambda: heard.signals, 30)
    assert heard.signals == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) == before


async def test_a_signal_to_a_forked_child_is_the_childs():
    is_ready, say_ready = os.pipe()
    with Heard().watching(signal.SIGTERM) as heard:
        if (child := os.fork()) == 0:
            os.write(say_ready, b"1")
            signal.pause()
            os._exit(0)
        os.read(is_ready, 1)
        os.kill(child, signal.SIGTERM)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
    for fd in (is_ready, say_ready):
        os.close(fd)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    assert heard.signals == []
