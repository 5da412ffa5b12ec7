# SPDX-License-Identifier: Apache-2.0
"""What verification by computing costs beside the bare computation: unit tests for `code_gen`, and math-verify.

Unit tests are measured in CPU time, of this process and all below it. math-verify is measured in wall time, because how
well all cores are kept busy is the question.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import psutil
import uvloop

from nemo_gym import PARENT_DIR
from nemo_gym._bench.measure import in_turns_async, in_unit, ratios_of
from nemo_gym._bench.report import Row
from nemo_gym._bench.verifying import serving, up_to_verify, verify_all
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym.code_execution import CodePool

_AT_ONCE = 256
_ROUNDS = 5
_MATH_ROUNDS = 3
_TESTS = 20
_TEST_BOUND = 1.0
_OWN_TIME_BOUND = 1.25
# As fast as the bare library; the rest is noise.
_MATH_BOUND = 1.1
# About 50 ms; it says what it took itself.
_BUSY = "import time\nbegin = time.process_time()\nsum(range(2_500_000))\nprint(time.process_time() - begin)"
_SMALL = "print(int(input()) * 2)"
_MATH = "math_with_judge"
_CHUNK = 16


def yardsticks() -> list[Row]:
    """All of them."""
    return [*uvloop.run(_code_rows()), *uvloop.run(_math_rows())]


async def _code_rows() -> list[Row]:
    """What a unit test costs: beside an interpreter started for it, and beside what its program takes itself."""
    shares: list[float] = []
    async with CodePool(workers=_cores()) as pool:
        await pool.start()

        async def bare() -> float:
            return await _cpu_s(lambda: asyncio.to_thread(_start_interpreters))

        async def small() -> float:
            return await _cpu_s(lambda: _tests(pool, _SMALL))

        async def busy() -> float:
            own_s: list[float] = []
            all_s = await _cpu_s(lambda: _tests(pool, _BUSY, own_s))
            shares.append(sum(own_s) / all_s)
            return all_s

        samples = await in_turns_async({"bare": bare, "small": small, "busy": busy}, _ROUNDS)
    share = statistics.median(shares)
    return [
        Row.of_samples("code_gen: a small unit test", in_unit(samples, "small", 1000 / _TESTS), "ms of CPU"),
        Row.of_samples(
            "code_gen: a small unit test", ratios_of(samples, "small", "bare"), "of bare `python -c`", _TEST_BOUND
        ),
        Row("code_gen: a unit test of 50 ms", 1 / share, "of its program's own time", _OWN_TIME_BOUND),
    ]


async def _tests(pool: CodePool, source: str, own_s: list[float] | None = None) -> None:
    for result in await asyncio.gather(*(pool.run(source, stdin="21\n") for _ in range(_TESTS))):
        assert result.status == "ok", result
        if own_s is not None:
            own_s.append(float(result.stdout))


def _start_interpreters() -> None:
    """The small test in interpreters of its own."""
    for _ in range(_TESTS):
        done = subprocess.run([sys.executable, "-I", "-c", _SMALL], input=b"21\n", capture_output=True, check=True)
        assert done.stdout == b"42\n"


async def _cpu_s(work: Callable[[], Awaitable[None]]) -> float:
    """The CPU time of this process and of all below it."""
    before = _cpu_until_now_s()
    await work()
    return _cpu_until_now_s() - before


def _cpu_until_now_s() -> float:
    this = psutil.Process()
    spent = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(one.user + one.system + one.children_user + one.children_system for one in spent)


async def _math_rows() -> list[Row]:
    """Verifications, beside the library called on the same answers in a process on every core."""
    path = Path(PARENT_DIR) / "resources_servers" / _MATH / "data" / "train.jsonl"
    if not path.is_file():
        return []
    expected = [row["expected_answer"] for row in read_rows(path)]
    pairs = [(gold, f"So the answer is \\boxed{{{gold}}}.") for gold in expected]
    pairs = [pairs[number % len(pairs)] for number in range(_AT_ONCE)]
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(_cores(), get_context("spawn")) as processes:
        async with serving(_MATH, path) as subject:

            async def bare() -> float:
                begin = time.perf_counter()
                verdicts = await loop.run_in_executor(
                    None, lambda: list(processes.map(_bare_verdict, pairs, chunksize=_CHUNK))
                )
                assert all(verdicts)
                return time.perf_counter() - begin

            async def ours() -> float:
                return max(await verify_all(subject, await up_to_verify(subject, _AT_ONCE)))

            samples = await in_turns_async({"bare": bare, "ours": ours}, _MATH_ROUNDS)
    ratios = ratios_of(samples, "ours", "bare")
    return [Row.of_samples(f"{_MATH}: a verification", ratios, "of bare math-verify", _MATH_BOUND)]


def _bare_verdict(pair: tuple[str, str]) -> bool:
    """What the library says of a pair of expected and generated answers."""
    from math_verify import parse, verify

    gold, said = pair
    return bool(verify(parse(f"\\boxed{{{gold}}}"), parse(said)))


def _cores() -> int:
    return len(os.sched_getaffinity(0))
