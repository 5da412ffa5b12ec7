# SPDX-License-Identifier: Apache-2.0
"""Sessions in sandboxes: what one piece of code leaves is there for the next, until the session ends or is lost."""

import asyncio
import textwrap

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_session_keeps_its_variables(pool):
    async with pool.session() as session:
        assert (await session.run("import math\nx = 4")).value is None
        result = await session.run("print('x is', x)\nmath.sqrt(x)")
    assert (result.status, result.stdout, result.value, result.state_lost) == ("ok", "x is 4\n", "2.0", False)


async def test_sessions_do_not_see_each_other(pool):
    async with pool.session() as one, pool.session() as other:
        await one.run("x = 1\nopen('file', 'w').close()")
        assert (await other.run("x")).error == "NameError: name 'x' is not defined"
        assert (await other.run("import os; os.listdir('.')")).value == "[]"
        assert (await one.run("import os; x, os.listdir('.')")).value == "(1, ['file'])"


async def test_a_new_session_finds_nothing_of_an_old_one(pool):
    for _ in range(2):
        async with pool.session() as session:
            assert (await session.run("'x' in globals(), __import__('os').listdir('.')")).value == "(False, [])"
            await session.run("x = 1\nopen('file', 'w').close()")


async def test_an_error_in_a_session_keeps_its_variables(pool):
    async with pool.session() as session:
        await session.run("x = 1")
        assert (await session.run("1 / 0")).error == "ZeroDivisionError: division by zero"
        assert (await session.run("import sys; sys.exit(2)")).exit_code == 2
        assert (await session.run("x")).value == "1"


async def test_code_that_takes_too_long_is_interrupted_and_the_session_goes_on(pool):
    async with pool.session() as session:
        await session.run("x = 1")
        result = await session.run("while True: x += 1", timeout_s=0.2)
        assert (result.status, result.state_lost) == ("timeout", False)
        assert int((await session.run("x")).value) > 1


async def test_code_that_will_not_be_interrupted_loses_its_session(pool):
    async with pool.session() as session:
        await session.run("x = 1")
        stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
        result = await session.run(stubborn, timeout_s=0.2)
        assert (result.status, result.state_lost) == ("timeout", True)
        assert (await session.run("x")).error == "NameError: name 'x' is not defined"


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("import os; os._exit(0)", "error"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
        ("while True: print('x' * 4096)", "output"),
        ("import os; os.closerange(0, 100)", "error"),
        ("import os; os.close(3)", "error"),
        ("held = []\nwhile True: held.append(bytearray(10**8))", "memory"),
    ],
)
async def test_code_that_ends_its_process_loses_its_session(source, status, pool):
    async with pool.session() as session:
        result = await session.run(source)
        assert (result.status, result.state_lost) == (status, True), result
        assert (await session.run("1 + 1")).value == "2"


async def test_a_fork_of_a_session_takes_no_part_in_it(pool):
    async with pool.session() as session:
        assert (await session.run("import os\nos.fork() and os.wait()\nx = os.getpid()")).status == "ok"
        for _ in range(5):
            assert (await session.run("x == os.getpid()")).value == "True"
        assert (await session.run("while True: os.fork()")).status in ("error", "killed")
        for _ in range(5):
            assert (await session.run("1 + 1")).value == "2"


async def test_nothing_of_a_session_runs_between_two_pieces_of_code(pool):
    counting = """
        import threading, time
        longest_pause_s = 0.0
        def work():
            global longest_pause_s
            last = time.monotonic()
            while True:
                time.sleep(0.001)
                now = time.monotonic()
                longest_pause_s = max(longest_pause_s, now - last)
                last = now
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
    """
    async with pool.session() as session:
        await session.run(textwrap.dedent(counting))
        await asyncio.sleep(0.5)
        # It may take a moment until the thread has its turn.
        await session.run("while longest_pause_s < 0.5: time.sleep(0.001)", timeout_s=60)
        assert (await session.run("longest_pause_s >= 0.5")).value == "True"


async def test_a_long_value_is_cut(pool):
    async with pool.session() as session:
        assert len((await session.run("'x' * 10_000_000")).value) == 20_000
