# SPDX-License-Identifier: Apache-2.0
"""Workers of a run that stop without dying, or die before they are ready: no rollout waits for them."""

import asyncio

import pytest

from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.workers.worker_pool import WorkerPool
from tests.rollouts.workers.test_worker_pool import Crew, play_all, score, wait_until


@pytest.mark.fault(
    place="Worker of a run",
    fault="It is frozen (SIGSTOP, a lost node): it neither answers nor ends",
    outcome="After five minutes without an answer it is ended and replaced; another one plays its rollouts.",
)
async def test_a_frozen_worker_is_replaced_and_its_rollouts_are_played():
    async def freeze_the_first(worker, given, on_retry):
        if worker.name == "worker-1":
            worker.desk.take = lambda frame: None
            await asyncio.Event().wait()
        return await score(worker, given, on_retry)

    notices = list[str]()
    crew = Crew(freeze_the_first)
    async with WorkerPool(crew.start, 1, RunControl(), notices.append, max_silence_s=0.2) as pool:
        async with asyncio.timeout(300):
            outcomes = await play_all(pool, 3)
    assert {outcome.result["by"] for outcome in outcomes} == {"worker-2"}
    assert notices[0].startswith("worker-1 did not answer for 0.2 s")


async def test_a_worker_that_answers_is_left_alone_however_long_its_rollout_takes():
    going_on = asyncio.Event()

    async def take_long(worker, given, on_retry):
        await going_on.wait()
        return await score(worker, given, on_retry)

    crew = Crew(take_long)
    async with WorkerPool(crew.start, 1, RunControl(), max_silence_s=0.2) as pool:
        playing = asyncio.create_task(play_all(pool, 1))
        await asyncio.sleep(0.7)
        going_on.set()
        assert [outcome.result["by"] for outcome in await playing] == ["worker-1"]


@pytest.mark.fault(
    place="Worker of a run",
    fault="A worker dies, and its replacement is killed while it starts",
    outcome="Another one is started; only the third failure in a row ends the run, with its reason.",
)
async def test_a_replacement_that_is_killed_while_it_starts_does_not_end_the_run():
    control = RunControl()
    crew = Crew(score)

    async def start(name, on_data):
        if name in ("worker-2", "worker-3"):
            raise OSError("was killed by SIGKILL")
        return await crew.start(name, on_data)

    async with WorkerPool(start, 1, control) as pool:
        crew.workers[0].die()
        await wait_until(lambda: pool.names == ["worker-4"] or control.abort_reason is not None)
        assert control.abort_reason is None
        assert [outcome.result["by"] for outcome in await play_all(pool, 1)] == ["worker-4"]
