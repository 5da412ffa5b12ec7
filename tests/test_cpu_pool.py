# SPDX-License-Identifier: Apache-2.0
"""Worker processes for heavy computation: bounded, killable, and gone when they should be."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from fastapi import FastAPI

from nemo_gym.cpu_pool import CpuPool, PoolClosed, PoolFull, WorkerDied, usable_cpus
from tests.isolation.jobs import crash, double, fail, fail_awkwardly, hang, meet, modules, nap_in, unsendable, where


async def test_a_call_gives_its_result_from_another_process():
    async with CpuPool(workers=1) as pool:
        assert await pool.run(double, 21) == 42
        assert await pool.run(where) != os.getpid()


async def test_a_worker_is_kept_warm_from_call_to_call():
    async with CpuPool(workers=1) as pool:
        assert await pool.run(where) == await pool.run(where)


async def test_calls_run_at_the_same_time_on_different_workers(tmp_path):
    async with CpuPool(workers=2) as pool:
        pids = await asyncio.gather(pool.run(meet, tmp_path, "a", "b"), pool.run(meet, tmp_path, "b", "a"))
    assert len(set(pids)) == 2


async def test_many_calls_share_few_workers():
    async with CpuPool(workers=2) as pool:
        assert await asyncio.gather(*(pool.run(double, n) for n in range(200))) == [2 * n for n in range(200)]
        assert len(set(await asyncio.gather(*(pool.run(where) for _ in range(20))))) <= 2


async def test_a_call_over_its_time_is_killed_and_the_next_one_runs():
    async with CpuPool(workers=1, timeout_s=30) as pool:
        old = await pool.run(where)
        with pytest.raises(TimeoutError, match=r"hang gave no answer within 0.2 s and was killed"):
            await pool.run_for(0.2, hang)
        assert await pool.run(where) != old
        await gone(old)


async def test_a_crash_is_an_error_of_that_call_alone():
    async with CpuPool(workers=1) as pool:
        with pytest.raises(WorkerDied, match="crash ended without an answer"):
            await pool.run(crash)
        assert await pool.run(double, 1) == 2


async def test_a_worker_that_died_while_idle_is_not_lent():
    async with CpuPool(workers=1) as pool:
        idle = await pool.run(where)
        os.kill(idle, signal.SIGKILL)
        await gone(idle)
        assert await pool.run(double, 1) == 2


async def test_workers_start_again_after_the_process_that_forks_them_was_killed():
    async with CpuPool(workers=1) as pool:
        worker = await pool.run(where)
        template = psutil.Process(worker).parent()
        assert template is not None
        template.kill()
        await gone(worker)
        assert await pool.run(double, 1) == 2


async def test_what_a_call_raises_is_raised_with_where_it_happened():
    async with CpuPool(workers=1) as pool:
        with pytest.raises(ValueError, match="no such thing") as raised:
            await pool.run(fail, "no such thing")
        assert "in fail" in raised.value.__notes__[0]
        assert await pool.run(double, 1) == 2


@pytest.mark.parametrize("call", [unsendable, fail_awkwardly])
async def test_an_outcome_that_cannot_be_sent_is_named(call):
    async with CpuPool(workers=1) as pool:
        with pytest.raises(TypeError, match="cannot be sent between processes"):
            await pool.run(call)
        assert await pool.run(double, 1) == 2


async def test_a_full_queue_refuses_more():
    async with CpuPool(workers=1, max_queue=1) as pool:
        running = [asyncio.ensure_future(pool.run_for(30, hang)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(PoolFull, match="1 calls are waiting"):
            await pool.run(double, 1)
        for call in running:
            call.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert await pool.run(double, 2) == 4


async def test_a_cancelled_call_is_killed(tmp_path):
    async with CpuPool(workers=1) as pool:
        call = asyncio.ensure_future(pool.run(nap_in, tmp_path))
        names = await soon(lambda: os.listdir(tmp_path))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await gone(int(names[0]))


async def test_closing_ends_all_processes_and_refuses_calls():
    pool = CpuPool(workers=2)
    worker = await pool.run(where)
    await pool.aclose()
    await gone(worker)
    with pytest.raises(PoolClosed):
        await pool.run(double, 1)


async def test_a_call_that_runs_while_its_pool_is_closed_has_no_result(tmp_path):
    pool = CpuPool(workers=1)
    call = asyncio.ensure_future(pool.run(nap_in, tmp_path))
    [name] = await soon(lambda: os.listdir(tmp_path))
    await pool.aclose()
    with pytest.raises(PoolClosed):
        await call
    await gone(int(name))


async def test_a_pool_closes_with_its_app():
    pool, app = CpuPool(workers=1), FastAPI()
    pool.close_with(app)
    async with app.router.lifespan_context(app):
        worker = await pool.run(where)
    await gone(worker)


def test_a_pool_serves_one_event_loop_after_the_other():
    pool = CpuPool(workers=1)
    assert [asyncio.run(pool.run(double, n)) for n in (1, 2)] == [2, 4]
    asyncio.run(pool.aclose())


async def test_nothing_is_started_before_the_first_call():
    before = set(psutil.Process().children(recursive=True))
    async with CpuPool(workers=2):
        assert set(psutil.Process().children(recursive=True)) == before


async def test_modules_are_loaded_before_they_are_needed():
    async with CpuPool(workers=1, preload=["colorsys"]) as pool:
        assert "colorsys" in await pool.run(modules)


async def test_a_module_that_cannot_be_loaded_is_named():
    async with CpuPool(workers=1, preload=["no_such_module_anywhere"]) as pool:
        with pytest.raises(WorkerDied, match="no_such_module_anywhere"):
            await pool.run(double, 1)


def test_a_script_can_use_its_own_functions_and_those_beside_it(tmp_path):
    (tmp_path / "beside.py").write_text("def triple(n):\n    return 3 * n\n")
    (tmp_path / "app.py").write_text(
        textwrap.dedent("""
        import asyncio, dataclasses, sys
        from nemo_gym.cpu_pool import CpuPool
        import beside

        @dataclasses.dataclass
        class Pair:
            left: int

        def swap(pair):
            return Pair(-pair.left)

        async def main():
            sys.path.pop(0)  # as after the import of a server's entrypoint
            async with CpuPool(workers=1) as pool:
                print(await pool.run(swap, Pair(5)), await pool.run(beside.triple, 2))

        if __name__ == "__main__":
            asyncio.run(main())
        """)
    )
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, env=package_env(), capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("Pair(left=-5) 6\n", "")


def test_workers_do_not_outlive_a_killed_server(tmp_path):
    (tmp_path / "app.py").write_text(
        textwrap.dedent("""
        import asyncio, os, time
        from nemo_gym.cpu_pool import CpuPool

        def busy():
            print(os.getpid(), flush=True)
            time.sleep(600)

        if __name__ == "__main__":
            asyncio.run(CpuPool(workers=1, timeout_s=600).run(busy))
        """)
    )
    command = [sys.executable, "app.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=package_env(), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        worker = int(server.stdout.readline())
        server.kill()
    asyncio.run(gone(worker))


def test_the_default_is_a_worker_for_every_cpu():
    assert 1 <= usable_cpus() <= (os.cpu_count() or 1)


def package_env():
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


async def gone(pid):
    await soon(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


async def soon(look):
    async with asyncio.timeout(300):
        while not (seen := look()):  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)
    return seen
