# SPDX-License-Identifier: Apache-2.0
"""The pool of sandboxes: few serve many, those that die are replaced, and none outlives its pool."""

import asyncio
import os
import shutil
import subprocess
import sys
import textwrap

import psutil
import pytest
from fastapi import FastAPI

from nemo_gym import PARENT_DIR
from nemo_gym.code_execution import (
    CodePool,
    Limits,
    PoolClosed,
    PoolFull,
    SandboxLost,
    SandboxUnavailable,
    installed_packages,
)
from tests.support.sandbox_processes import SLEEP, busy_sandboxes, is_alive, kill_the_sandbox, sandboxes, soon

pytestmark = pytest.mark.thorough


@pytest.fixture
def others():
    """The sandboxes of other tests."""
    return sandboxes()


async def test_programs_share_few_sandboxes_and_all_get_their_own_answer(others):
    async with CodePool(workers=2) as pool:
        results = await asyncio.gather(*(pool.run(f"print({n} * {n})") for n in range(60)))
        assert [result.stdout for result in results] == [f"{n * n}\n" for n in range(60)]
        assert len(sandboxes() - others) == 2


async def test_a_program_whose_sandbox_is_killed_runs_again_in_another(caplog):
    async with CodePool(workers=1) as pool:
        running = asyncio.ensure_future(pool.run(f"{SLEEP}(1); print('done')", timeout_s=60))
        await kill_the_sandbox()
        assert (await running).stdout == "done\n"
    assert "replacing a sandbox" in caplog.text


async def test_a_session_whose_sandbox_is_killed_is_lost():
    async with CodePool() as pool, pool.session() as session:
        running = asyncio.ensure_future(session.run(f"{SLEEP}(60)", timeout_s=60))
        await kill_the_sandbox()
        with pytest.raises(SandboxLost, match="could not be run to its end"):
            await running
        assert not session.is_usable


async def test_a_program_that_runs_while_its_pool_is_closed_has_no_result(others):
    pool = CodePool(workers=1)
    running = asyncio.ensure_future(pool.run(f"{SLEEP}(60)", timeout_s=60))
    await soon(busy_sandboxes)
    await pool.aclose()
    with pytest.raises(PoolClosed):
        await running
    await soon(lambda: not sandboxes() - others)


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
    env = {**os.environ, "PYTHONPATH": str(PARENT_DIR), "TMPDIR": str(tmp_path)}
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    with subprocess.Popen([sys.executable, "app.py"], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL) as server:
        # Bubblewrap or the keeper, the process that forks, and the program.
        below = asyncio.run(soon(lambda: enough(psutil.Process(server.pid).children(recursive=True), 3)))
        server.kill()
    asyncio.run(soon(lambda: not any(is_alive(process) for process in below)))
    asyncio.run(soon(lambda: [entry.name for entry in tmp_path.iterdir()] == ["app.py"]))


def enough(processes, count):
    return processes if len(processes) >= count and is_alive(processes[-1]) else None
