# SPDX-License-Identifier: Apache-2.0
"""Work off the event loop."""

import asyncio
import contextvars
import multiprocessing
import os
import signal
import threading
import time

import pytest

from nemo_gym._util.off_the_loop import AsFinished, ChildProcessDied, in_process, in_thread

WHO = contextvars.ContextVar("WHO", default="nobody")


def pid_and_sum(*numbers, start=0):
    return os.getpid(), sum(numbers, start)


def fail():
    raise KeyError("broken")


def fail_late():
    raise TimeoutError("my own")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def not_picklable():
    return lambda: None


def hang():
    time.sleep(600)


def write_pid_and_hang(path):
    path.write_text(str(os.getpid()))
    hang()


def wait_until_gone(pid):
    """Returns when the process `pid` is no more; the time limit of the suite bounds it."""
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)


def wait_until_written(path):
    while not (path.exists() and path.read_text()):
        time.sleep(0.01)
    return int(path.read_text())


async def test_a_thread_runs_the_work_with_the_callers_context():
    WHO.set("me")
    name, who = await in_thread(lambda: (threading.current_thread().name, WHO.get()))
    assert name != threading.main_thread().name
    assert who == "me"


async def test_a_process_of_its_own_gives_the_result():
    pid, total = await in_process(pid_and_sum, 1, 2, start=3, timeout_s=60)
    assert pid != os.getpid()
    assert total == 6


async def test_errors_of_the_work_are_raised_here():
    with pytest.raises(KeyError, match="broken"):
        await in_process(fail)
    with pytest.raises(TimeoutError, match="my own"):
        await in_process(fail_late, timeout_s=60)


async def test_a_child_that_dies_is_an_error_and_not_a_hang():
    with pytest.raises(ChildProcessDied, match="exit code -9"):
        await in_process(die)


async def test_a_result_that_cannot_be_sent_is_an_error():
    with pytest.raises(TypeError, match="cannot be sent between processes"):
        await in_process(not_picklable)


async def test_work_that_hangs_is_killed_at_its_deadline():
    with pytest.raises(TimeoutError, match=r"hang gave no answer within 0.2 s and was killed"):
        await in_process(hang, timeout_s=0.2)
    assert multiprocessing.active_children() == []


async def test_cancelling_the_caller_kills_the_child(tmp_path):
    task = asyncio.create_task(in_process(write_pid_and_hang, tmp_path / "pid"))
    pid = await in_thread(wait_until_written, tmp_path / "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await in_thread(wait_until_gone, pid)


# --- rollouts that nobody awaits --------------------------------------------------------------------------------------


async def give(value, after=0.0):
    await asyncio.sleep(after)
    return value


async def test_what_finishes_first_comes_first():
    assert [await one for one in AsFinished([give("late", 0.2), give("early")])] == ["early", "late"]


async def test_an_awaitable_outlives_the_iterator_that_has_yielded_it():
    assert await next(AsFinished([give("only")])) == "only"
    assert sorted(await asyncio.gather(*AsFinished([give(1, 0.01), give(2)]))) == [1, 2]


async def test_what_nobody_can_await_any_more_is_cancelled():
    ended = asyncio.Event()

    async def wait_forever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    finishing = AsFinished([give(1), wait_forever()])
    assert await next(finishing) == 1
    waiter = asyncio.ensure_future(next(finishing))
    del finishing
    await asyncio.sleep(0)
    assert not ended.is_set(), "somebody awaits it"
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    del waiter
    async with asyncio.timeout(300):
        await ended.wait()
