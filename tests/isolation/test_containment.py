# SPDX-License-Identifier: Apache-2.0
"""Hostile code ends like any other code that fails, and the next piece of code does not notice."""

import asyncio
import logging
import os
import shutil

import psutil
import pytest
import pytest_asyncio

from nemo_gym.code_execution import CodePool, Limits
from tests.isolation.hostile import BOMBS, EVERYWHERE, WITH_BUBBLEWRAP, Attack

pytestmark = pytest.mark.asyncio(loop_scope="module")

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed here")
LIMITS = Limits(memory_mib=256, max_processes=24, files_mib=8, max_output_bytes=500_000)
PROBE = "import os\nprint(sum(range(10)), os.listdir('.'), len('abc'), open is not None)"
WELL = "45 [] 3 True\n"


@pytest.fixture(scope="module", autouse=True)
def secret():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_THE_TEST", "hunter2")
        yield


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bubblewrapped(secret):
    async with CodePool(workers=1, limits=LIMITS, timeout_s=120, isolation="bubblewrap") as pool:
        yield pool


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def limited(secret):
    async with CodePool(workers=1, limits=LIMITS, timeout_s=120, isolation="rlimits") as pool:
        yield pool


@needs_bubblewrap
@pytest.mark.parametrize("attack", EVERYWHERE + WITH_BUBBLEWRAP, ids=lambda attack: attack.name)
async def test_bubblewrap_contains_every_attack(attack: Attack, bubblewrapped: CodePool):
    await is_contained(attack, bubblewrapped)


@pytest.mark.parametrize("attack", EVERYWHERE, ids=lambda attack: attack.name)
async def test_limits_alone_contain_every_attack(attack: Attack, limited: CodePool):
    await is_contained(attack, limited)


async def is_contained(attack: Attack, pool: CodePool):
    before = await pool.run(PROBE)
    result = await pool.run(attack.source, timeout_s=0.3 if "timeout" in attack.statuses else 120)
    assert result.status in attack.statuses, result
    if attack.says is not None:
        assert result.stdout.strip() == attack.says, result
    after = await pool.run(PROBE)
    assert (before.stdout, after.stdout) == (WELL, WELL), after
    await nothing_is_left()


async def nothing_is_left():
    """Nothing of the code runs; a sandbox that was given up for what the code left in it may take a while to end."""
    async with asyncio.timeout(300):
        while strangers():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)


def strangers():
    """Processes below this one that are not part of a sandbox at rest: bubblewrap, and the interpreter in it."""
    below = psutil.Process().children(recursive=True)
    return [p for p in below if p.is_running() and p.uids().real != os.getuid() and p.status() != psutil.STATUS_ZOMBIE]


async def test_a_hostile_program_among_others_harms_none_of_them():
    async with CodePool(workers=2, limits=LIMITS, timeout_s=1.0) as pool:
        wild = [pool.run(attack.source) for attack in BOMBS[:4]]
        calm = [pool.run(f"print({n} ** 2)", timeout_s=300) for n in range(20)]
        results = await asyncio.gather(*wild, *calm)
    assert [result.stdout for result in results[4:]] == [f"{n**2}\n" for n in range(20)]


@needs_bubblewrap
async def test_the_log_says_which_isolation_there_is(caplog):
    caplog.set_level(logging.INFO, "nemo_gym._isolation")
    for isolation, words in (("bubblewrap", "under bubblewrap"), ("rlimits", "resource limits only")):
        async with CodePool(workers=1, isolation=isolation) as pool:
            await pool.run("")
            assert pool.isolation == isolation
        assert sum(words in record.message for record in caplog.records) == 1


async def test_without_bubblewrap_there_are_limits(caplog):
    async with CodePool(workers=1, bubblewrap="no-such-program") as pool:
        assert (await pool.run("print(1)")).stdout == "1\n"
        assert pool.isolation == "rlimits"
    assert "'no-such-program' is not installed" in caplog.text


async def test_a_bubblewrap_that_does_not_work_is_not_used(caplog):
    async with CodePool(workers=1, bubblewrap="false") as pool:
        assert (await pool.run("print(1)")).stdout == "1\n"
        assert pool.isolation == "rlimits"
