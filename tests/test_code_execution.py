# SPDX-License-Identifier: Apache-2.0
"""Programs, calls and sessions in sandboxes: they behave as Python does, and the pool as a pool should."""

import asyncio
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nemo_gym.code_execution import (
    CodePool,
    CodeResult,
    Limits,
    PoolClosed,
    PoolFull,
    SandboxUnavailable,
    installed_packages,
)


@pytest.fixture
def others():
    """The sandboxes of other tests."""
    return sandboxes()


module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pool():
    async with CodePool(workers=2, timeout_s=10) as shared:
        yield shared


@module_loop
async def test_a_program_reads_its_input_and_prints(pool):
    result = await pool.run("name = input()\nprint(f'hello {name}')", stdin="Ωμέγα\n")
    assert (result.status, result.stdout, result.stderr, result.exit_code) == ("ok", "hello Ωμέγα\n", "", 0)
    assert result.error == ""


@module_loop
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("if __name__ == '__main__': print('main')", "main\n"),
        ("import sys\nprint(sys.argv, __file__)", "['main.py'] main.py\n"),
        ("import sys\nfor line in sys.stdin: print(line.strip()[::-1])", "cba\nfed\n"),
        ("import sys\nprint(len(sys.stdin.buffer.read()), sys.stdin.read())", "8 \n"),
        ("print(open(0).read().split())", "['abc', 'def']\n"),
        ("import threading\nthreading.Thread(target=lambda: print('from a thread')).start()", "from a thread\n"),
        ("import atexit\natexit.register(print, 'at the end')\nprint('first')", "first\nat the end\n"),
        ("import io, sys\nsys.stdout = io.StringIO()\nprint('kept')\nsys.__stdout__.write('told')", "told"),
        ("import sys\nprint('before')\nsys.exit()", "before\n"),
        ("exit()", ""),
        ("open('note', 'w').write('x')\nprint(open('note').read())", "x\n"),
        ("open('helper.py', 'w').write('x = 5')\nimport helper\nprint(helper.x)", "5\n"),
        ("import subprocess\nprint(subprocess.run(['echo', 'hi'], capture_output=True).stdout)", "b'hi\\n'\n"),
        ("import asyncio\nprint(asyncio.run(asyncio.sleep(0, 'slept')))", "slept\n"),
        ("import pickle\nclass P: x = 1\nprint(pickle.loads(pickle.dumps(P())).x)", "1\n"),
        ("from concurrent.futures import ThreadPoolExecutor as T\nprint(list(T(2).map(abs, [-1, -2])))", "[1, 2]\n"),
        ("import multiprocessing as m\nprint(m.get_context('fork').Pool(2).map(abs, [-1, -2]))", "[1, 2]\n"),
        ("import sys\nsys.setrecursionlimit(10**5)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(50_000))", "50000\n"),
        ("print('nemo_gym' in __import__('sys').modules)", "False\n"),
    ],
)  # fmt: skip
async def test_a_program_runs_as_it_would_on_its_own(source, said, pool):
    result = await pool.run(source, stdin="abc\ndef\n")
    assert (result.status, result.stdout) == ("ok", said), result


@module_loop
async def test_an_error_is_shown_as_python_shows_it(pool):
    result = await pool.run("def f():\n    return 1 / 0\nprint('so far')\nf()")
    assert (result.status, result.exit_code, result.stdout) == ("error", 1, "so far\n")
    assert result.error == "ZeroDivisionError: division by zero"
    assert result.stderr.startswith(
        'Traceback (most recent call last):\n  File "main.py", line 4, in <module>\n    f()\n'
    )


@module_loop
@pytest.mark.parametrize(
    ("source", "status", "exit_code"),
    [
        ("raise SystemExit(3)", "error", 3),
        ("raise SystemExit('no')", "error", 1),
        ("import os; os._exit(4)", "error", 4),
        ("def broken(:", "error", 1),
        ("raise KeyboardInterrupt", "error", 1),
        ("while True: pass", "timeout", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed", -11),
        ("bytearray(1 << 40)", "memory", 1),
        ("while True: print('x' * 4096)", "output", -9),
    ],
)
async def test_every_end_has_its_status(source, status, exit_code, pool):
    result = await pool.run(source, timeout_s=0.3 if status == "timeout" else 10)
    assert (result.status, result.exit_code) == (status, exit_code), result
    assert result.error


@module_loop
async def test_output_up_to_the_limit_is_kept_whole(pool):
    result = await pool.run("print('é' * 1_500_000)")
    assert (result.status, len(result.stdout)) == ("ok", 1_500_001)


@module_loop
async def test_of_long_complaints_the_end_is_kept(pool):
    result = await pool.run("import sys\nfor n in range(100_000): print(n, file=sys.stderr)")
    assert result.stderr.endswith("\n99998\n99999\n")
    assert len(result.stderr) == 1 << 16


@module_loop
async def test_output_that_is_not_text_is_made_text(pool):
    assert (await pool.run("import os\nos.write(1, b'\\xff\\xfe')")).stdout == "\ufffd\ufffd"


@module_loop
async def test_a_large_input_arrives(pool):
    assert (await pool.run("print(len(input()))", stdin="x" * 5_000_000)).stdout == "5000000\n"


@module_loop
async def test_hashes_are_the_same_in_every_run(pool):
    async with CodePool(workers=1) as other:
        first, second = await pool.run("print(hash('a'))"), await other.run("print(hash('a'))")
    assert first.stdout == second.stdout


@module_loop
async def test_random_numbers_are_not(pool):
    said = {(await pool.run("import random; print(random.random())")).stdout for _ in range(3)}
    assert len(said) == 3


@module_loop
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(source=st.text(st.characters(codec=None), max_size=200), stdin=st.text(max_size=50))
async def test_any_source_gives_a_result(source, stdin, pool):
    assert isinstance(await pool.run(source, stdin=stdin), CodeResult)


@module_loop
@pytest.mark.parametrize(
    ("source", "arguments", "value"),
    [
        ("def f(x, y): return x + y", [1, 2], 3),
        ("class Solution:\n    def f(self, x): return x[::-1]", ["abc"], "cba"),
        ("class Solution: pass\ndef f(): return 'mine'", [], "mine"),
        ("def f(x): return (x, None, {'k': 1.5})", [True], [True, None, {"k": 1.5}]),
        ("def f(): return None", [], None),
        ("f = lambda x: print('noise') or x", [[1, [2]]], [1, [2]]),
        ("def f(): return float('inf')", [], float("inf")),
    ],
)
async def test_a_call_gives_what_the_function_returns(source, arguments, value, pool):
    result = await pool.call(source, "f", arguments)
    assert (result.status, result.value) == ("ok", value), result


@module_loop
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1", "the code defines no function 'f'"),
        ("f = 5", "the code defines no function 'f'"),
        ("def f(x): return x", "missing 1 required positional argument"),
        ("def f(): return {1, 2}", "not JSON serializable"),
        ("def f(): raise SystemExit", "f ended the program"),
        ("import os\ndef f(): os._exit(0)", "f ended the program"),
        ('import os\ndef f():\n    os.write(3, b\'{"value": "[["}\\n\')\n    os._exit(0)', "f gave no JSON value"),
        (
            "import os\ndef f():\n    os.write(3, b'{\"value\": \"' + b'[' * 100_000 + b'\"}\\n')\n    os._exit(0)",
            "no JSON",
        ),
        ("import os\ndef f():\n    os.write(3, b'[' * 100_000 + b'\\n')\n    os._exit(0)", "f ended the program"),
        ("1 / 0", "division by zero"),
        ("def f(): return 1 / 0", "division by zero"),
    ],
)
async def test_a_call_without_a_value_is_an_error(source, words, pool):
    result = await pool.call(source, "f")
    assert (result.status, result.value) == ("error", None)
    assert words in result.stderr


@module_loop
async def test_a_prelude_gives_names_without_moving_the_lines(pool):
    prelude = "from math import *\nimport heapq"
    result = await pool.run("from __future__ import annotations\nprint(floor(2.5), heapq)\n1 / 0", prelude=prelude)
    assert result.stdout.startswith("2 <module 'heapq'")
    assert 'File "main.py", line 3' in result.stderr
    assert (await pool.call("def f(x): return floor(x)", "f", [1.5], prelude=prelude)).value == 1


@module_loop
async def test_a_function_of_the_prelude_is_none_of_the_code(pool):
    result = await pool.call("x = 1", "add", [1, 2], prelude="from operator import *")
    assert result.error == "NameError: the code defines no function 'add'"


@module_loop
async def test_a_session_keeps_its_variables(pool):
    async with pool.session() as session:
        assert (await session.run("import math\nx = 4")).value is None
        result = await session.run("print('x is', x)\nmath.sqrt(x)")
    assert (result.status, result.stdout, result.value, result.state_lost) == ("ok", "x is 4\n", "2.0", False)


@module_loop
async def test_sessions_do_not_see_each_other(pool):
    async with pool.session() as one, pool.session() as other:
        await one.run("x = 1\nopen('file', 'w').close()")
        assert (await other.run("x")).error == "NameError: name 'x' is not defined"
        assert (await other.run("import os; os.listdir('.')")).value == "[]"
        assert (await one.run("import os; x, os.listdir('.')")).value == "(1, ['file'])"


@module_loop
async def test_a_new_session_finds_nothing_of_an_old_one(pool):
    for _ in range(2):
        async with pool.session() as session:
            assert (await session.run("'x' in globals(), __import__('os').listdir('.')")).value == "(False, [])"
            await session.run("x = 1\nopen('file', 'w').close()")


@module_loop
async def test_an_error_in_a_session_keeps_its_variables(pool):
    async with pool.session() as session:
        await session.run("x = 1")
        assert (await session.run("1 / 0")).error == "ZeroDivisionError: division by zero"
        assert (await session.run("import sys; sys.exit(2)")).exit_code == 2
        assert (await session.run("x")).value == "1"


@module_loop
async def test_code_that_takes_too_long_is_interrupted_and_the_session_goes_on(pool):
    async with pool.session() as session:
        await session.run("x = 1")
        result = await session.run("while True: x += 1", timeout_s=0.2)
        assert (result.status, result.state_lost) == ("timeout", False)
        assert int((await session.run("x")).value) > 1


@module_loop
async def test_code_that_will_not_be_interrupted_loses_its_session(pool):
    async with pool.session() as session:
        await session.run("x = 1")
        stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
        result = await session.run(stubborn, timeout_s=0.2)
        assert (result.status, result.state_lost) == ("timeout", True)
        assert (await session.run("x")).error == "NameError: name 'x' is not defined"


@module_loop
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


@module_loop
async def test_a_fork_of_a_session_takes_no_part_in_it(pool):
    async with pool.session() as session:
        assert (await session.run("import os\nos.fork() and os.wait()\nx = os.getpid()")).status == "ok"
        for _ in range(5):
            assert (await session.run("x == os.getpid()")).value == "True"
        assert (await session.run("while True: os.fork()")).status in ("error", "killed")
        for _ in range(5):
            assert (await session.run("1 + 1")).value == "2"


@module_loop
async def test_nothing_of_a_session_runs_between_two_pieces_of_code(pool):
    counting = """
        import threading, time
        count = 0
        def work():
            global count
            while True:
                count += 1
                time.sleep(0.001)
        threading.Thread(target=work, daemon=True).start()
    """
    async with pool.session() as session:
        await session.run(textwrap.dedent(counting))
        before = int((await session.run("count")).value)
        await asyncio.sleep(0.3)
        after = int((await session.run("count")).value)
    assert after - before < 100


@module_loop
async def test_a_long_value_is_cut(pool):
    async with pool.session() as session:
        assert len((await session.run("'x' * 10_000_000")).value) == 20_000


async def test_programs_share_few_sandboxes_and_all_get_their_own_answer(others):
    async with CodePool(workers=2) as pool:
        results = await asyncio.gather(*(pool.run(f"print({n} * {n})") for n in range(60)))
        assert [result.stdout for result in results] == [f"{n * n}\n" for n in range(60)]
        assert len(sandboxes() - others) == 2


async def test_a_program_whose_sandbox_is_killed_runs_again_in_another(caplog, others):
    async with CodePool(workers=1) as pool:
        running = asyncio.ensure_future(pool.run("import time; time.sleep(1); print('done')", timeout_s=60))
        await kill_the_sandbox(others)
        assert (await running).stdout == "done\n"
    assert "is replaced" in caplog.text


async def test_a_program_that_loses_two_sandboxes_is_at_fault(others):
    async with CodePool(workers=1) as pool:
        running = asyncio.ensure_future(pool.run("import time; time.sleep(60)", timeout_s=60))
        for _ in range(2):
            await kill_the_sandbox(others)
        assert (await running).status == "killed"
        assert (await pool.run("print(1)")).stdout == "1\n"


async def test_a_session_whose_sandbox_is_killed_is_lost(others):
    async with CodePool() as pool, pool.session() as session:
        running = asyncio.ensure_future(session.run("import time; time.sleep(60)", timeout_s=60))
        await kill_the_sandbox(others)
        result = await running
        assert (result.status, result.state_lost, session.is_usable) == ("killed", True, False)


async def test_a_program_that_runs_while_its_pool_is_closed_has_no_result(others):
    pool = CodePool(workers=1)
    running = asyncio.ensure_future(pool.run("import time; time.sleep(60)", timeout_s=60))
    await soon(lambda: busy_sandboxes(others))
    await pool.aclose()
    with pytest.raises(PoolClosed):
        await running
    await soon(lambda: not sandboxes() - others)


async def kill_the_sandbox(others):
    for sandbox in await soon(lambda: busy_sandboxes(others)):
        sandbox.kill()
        await soon(lambda sandbox=sandbox: not is_alive(sandbox))


def busy_sandboxes(others):
    """Those with bubblewrap, the interpreter in it, and a program."""
    depth = 2 if shutil.which("bwrap") else 1
    return [sandbox for sandbox in sandboxes() - others if len(processes_below(sandbox)) == depth]


def processes_below(process):
    try:
        return process.children(recursive=True) if is_alive(process) else []
    except psutil.NoSuchProcess:
        return []


async def test_a_full_queue_refuses_more():
    async with CodePool(workers=1, max_queue=1, timeout_s=60) as pool:
        running = [asyncio.ensure_future(pool.run("import time; time.sleep(60)")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(PoolFull, match="1 calls are waiting"):
            await pool.run("")
        for run in running:
            run.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert (await pool.run("print(1)")).stdout == "1\n"


async def test_more_sessions_than_allowed_wait_for_their_turn():
    async with CodePool(max_sessions=1) as pool:
        async with pool.session() as first:
            second = asyncio.ensure_future(one_session(pool))
            await first.run("1")
            assert not second.done()
        assert await second == "2"


async def one_session(pool):
    async with pool.session() as session:
        return (await session.run("1 + 1")).value


async def test_closing_leaves_no_process_and_refuses_programs(others):
    pool = CodePool(workers=2)
    await pool.run("")
    await pool.aclose()
    await soon(lambda: not sandboxes() - others)
    with pytest.raises(PoolClosed):
        await pool.run("")


async def test_a_pool_closes_with_its_app(others):
    pool, app = CodePool(workers=1), FastAPI()
    pool.close_with(app)
    async with app.router.lifespan_context(app):
        await pool.run("")
        assert sandboxes() - others
    await soon(lambda: not sandboxes() - others)


async def test_sandboxes_can_be_started_before_they_are_needed(others):
    async with CodePool(workers=2) as pool:
        await pool.start()
        assert len(sandboxes() - others) == 2


def test_a_pool_serves_one_event_loop_after_the_other():
    pool = CodePool(workers=1)
    assert [asyncio.run(pool.run("print(1)")).stdout for _ in range(2)] == ["1\n", "1\n"]
    asyncio.run(pool.aclose())


async def test_limits_are_those_that_were_asked_for():
    async with CodePool(workers=1, limits=Limits(memory_mib=100, max_output_bytes=1000)) as pool:
        assert (await pool.run("bytearray(60_000_000)")).status == "ok"
        assert (await pool.run("bytearray(200_000_000)")).status == "memory"
        assert (await pool.run("print('x' * 2000)")).status == "output"


async def test_code_imports_from_the_folders_it_may_see(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "helper.py").write_text("answer = 42")
    tmp_path.chmod(0o755)
    async with CodePool(workers=1, import_paths=[str(tmp_path / "shared")]) as pool:
        assert (await pool.run("import helper; print(helper.answer)")).stdout == "42\n"
    async with CodePool(workers=1) as pool:
        assert "No module named 'helper'" in (await pool.run("import helper")).stderr


async def test_installed_packages_can_be_shown_to_code():
    async with CodePool(workers=1, import_paths=installed_packages()) as pool:
        assert (await pool.run("import orjson; print(orjson.dumps([1]))")).stdout == "b'[1]'\n"


async def test_bubblewrap_that_is_demanded_but_missing_is_an_error():
    async with CodePool(isolation="bubblewrap", bubblewrap="no-such-program") as pool:
        with pytest.raises(SandboxUnavailable, match="'no-such-program' is not installed"):
            await pool.run("")


@pytest.mark.parametrize("isolation", ["bubblewrap", "rlimits"] if shutil.which("bwrap") else ["rlimits"])
def test_nothing_outlives_a_killed_server(isolation, tmp_path):
    (tmp_path / "app.py").write_text(
        textwrap.dedent(f"""
        import asyncio
        from nemo_gym.code_execution import CodePool

        asyncio.run(CodePool(workers=1, isolation={isolation!r}, timeout_s=600).run("import time; time.sleep(600)"))
        """)
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "TMPDIR": str(tmp_path)}
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    with subprocess.Popen([sys.executable, "app.py"], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL) as server:
        depth = 3 if isolation == "bubblewrap" else 2
        below = asyncio.run(soon(lambda: enough(psutil.Process(server.pid).children(recursive=True), depth)))
        server.kill()
    asyncio.run(soon(lambda: not any(is_alive(process) for process in below)))
    asyncio.run(soon(lambda: [entry.name for entry in tmp_path.iterdir()] == ["app.py"]))


def enough(processes, count):
    return processes if len(processes) >= count and is_alive(processes[-1]) else None


def is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def sandboxes():
    return set(psutil.Process().children())


async def soon(look):
    async with asyncio.timeout(30):
        while not (seen := look()):  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)
    return seen
