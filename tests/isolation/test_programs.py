# SPDX-License-Identifier: Apache-2.0
"""Programs and calls in sandboxes: they behave as Python does, and every end has its status."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nemo_gym.code_execution import CodePool, CodeResult

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_program_reads_its_input_and_prints(pool):
    result = await pool.run("name = input()\nprint(f'hello {name}')", stdin="Ωμέγα\n")
    assert (result.status, result.stdout, result.stderr, result.exit_code) == ("ok", "hello Ωμέγα\n", "", 0)
    assert result.error == ""


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


async def test_an_error_is_shown_as_python_shows_it(pool):
    result = await pool.run("def f():\n    return 1 / 0\nprint('so far')\nf()")
    assert (result.status, result.exit_code, result.stdout) == ("error", 1, "so far\n")
    assert result.error == "ZeroDivisionError: division by zero"
    assert result.stderr.startswith(
        'Traceback (most recent call last):\n  File "main.py", line 4, in <module>\n    f()\n'
    )


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
    result = await pool.run(source, timeout_s=0.3 if status == "timeout" else 120)
    assert (result.status, result.exit_code) == (status, exit_code), result
    assert result.error


async def test_output_up_to_the_limit_is_kept_whole(pool):
    result = await pool.run("print('é' * 1_500_000)")
    assert (result.status, len(result.stdout)) == ("ok", 1_500_001)


async def test_of_long_complaints_the_end_is_kept(pool):
    result = await pool.run("import sys\nfor n in range(100_000): print(n, file=sys.stderr)")
    assert result.stderr.endswith("\n99998\n99999\n")
    assert len(result.stderr) == 1 << 16


async def test_output_that_is_not_text_is_made_text(pool):
    assert (await pool.run("import os\nos.write(1, b'\\xff\\xfe')")).stdout == "\ufffd\ufffd"


async def test_a_large_input_arrives_whole(pool):
    assert (await pool.run("print(len(input()))", stdin="x" * 5_000_000)).stdout == "5000000\n"


async def test_hashes_are_the_same_in_every_run(pool):
    async with CodePool(workers=1) as other:
        first, second = await pool.run("print(hash('a'))"), await other.run("print(hash('a'))")
    assert first.stdout == second.stdout


async def test_random_numbers_differ_from_run_to_run(pool):
    said = {(await pool.run("import random; print(random.random())")).stdout for _ in range(3)}
    assert len(said) == 3


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(source=st.text(st.characters(codec=None), max_size=200), stdin=st.text(max_size=50))
async def test_any_source_gives_a_result(source, stdin, pool):
    assert isinstance(await pool.run(source, stdin=stdin), CodeResult)


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


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1", "the code defines no function 'f'"),
        ("f = 5", "the code defines no function 'f'"),
        ("def f(x): return x", "missing 1 required positional argument"),
        ("def f(): return {1, 2}", "not JSON serializable"),
        ("def f(): raise SystemExit", "f ended the program"),
        ("import os\ndef f(): os._exit(0)", "f ended the program"),
        ('import os\ndef f():\n    os.write(3, b\'{"value": "[["}\\n\')\n    os._exit(0)', "f ended the program"),
        ("import os\ndef f():\n    os.write(3, b'[' * 100_000 + b'\\n')\n    os._exit(0)", "f ended the program"),
        ("1 / 0", "division by zero"),
        ("def f(): return 1 / 0", "division by zero"),
    ],
)
async def test_a_call_without_a_value_is_an_error(source, words, pool):
    result = await pool.call(source, "f")
    assert (result.status, result.value) == ("error", None)
    assert words in result.stderr


async def test_a_program_whose_function_is_called_is_not_the_main_program(pool):
    source = "def f(x): return [x, __name__]\nif __name__ == '__main__': print(f(input()))"
    assert (await pool.call(source, "f", [2])).value == [2, "solution"]


async def test_a_prelude_gives_names_without_moving_the_lines(pool):
    prelude = "from math import *\nimport heapq"
    result = await pool.run("from __future__ import annotations\nprint(floor(2.5), heapq)\n1 / 0", prelude=prelude)
    assert result.stdout.startswith("2 <module 'heapq'")
    assert 'File "main.py", line 3' in result.stderr
    assert (await pool.call("def f(x): return floor(x)", "f", [1.5], prelude=prelude)).value == 1


async def test_a_function_of_the_prelude_is_none_of_the_code(pool):
    result = await pool.call("x = 1", "add", [1, 2], prelude="from operator import *")
    assert result.error == "NameError: the code defines no function 'add'"
