# SPDX-License-Identifier: Apache-2.0
"""Rows are played by workers, and the death of a worker costs no rollout. Workers are tasks of the test's own loop."""

import asyncio
from collections import Counter

import pytest

from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._rollouts.workers.worker_desk import WorkerDesk
from nemo_gym._rollouts.workers.worker_pool import WorkerPool
from nemo_gym._transport.failures import Failure
from nemo_gym._transport.retries import RETRIES


def row(task):
    return {"agent_ref": {"name": "a"}, "_ng_task_index": task, "_ng_rollout_index": 0}


class LocalWorker:
    """A worker without a process."""

    def __init__(self, name, on_data, play):
        self.name, self._on_data = name, on_data
        self.told, self.refuses = [], False
        self.desk = WorkerDesk(play, self._answer, dict, self._tell_servers)
        self._ended = asyncio.get_running_loop().create_future()

    def send(self, frame):
        if not self._ended.done():
            self.desk.take(frame)

    def _answer(self, frame):
        if not self._ended.done():
            self._on_data(frame)

    async def _tell_servers(self, announced):
        await asyncio.sleep(0)
        self.told.append(announced["version"])
        return {"policy": "it does not answer"} if self.refuses else {}

    def die(self, how="was killed by SIGKILL"):
        if not self._ended.done():
            self._ended.set_result(how)

    async def wait_for_end(self):
        return await asyncio.shield(self._ended)

    async def stop(self):
        self.die("was stopped")
        await self.desk.close()


class Crew:
    """Starts workers that play as `play` says, and knows them all."""

    def __init__(self, play):
        self.play, self.workers = play, []
        self.played = Counter()

    async def start(self, name, on_data):
        async def play(given, on_retry):
            self.played[given["_ng_task_index"]] += 1
            return await self.play(worker, given, on_retry)

        worker = LocalWorker(name, on_data, play)
        self.workers.append(worker)
        return worker


async def score(worker, given, on_retry):
    await asyncio.sleep(0)
    return Scored(given, {**given, "reward": 1.0, "by": worker.name}, 1, 0.1)


async def play_all(pool, tasks):
    return await asyncio.gather(*(pool.play(row(task)) for task in range(tasks)))


async def wait_until(condition):
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0)


async def test_rows_go_to_whoever_has_the_fewest_under_way():
    crew = Crew(score)
    async with WorkerPool(crew.start, 3, RunControl()) as pool:
        outcomes = await play_all(pool, 30)
    assert [outcome.row for outcome in outcomes] == [row(task) for task in range(30)]
    assert Counter(outcome.result["by"] for outcome in outcomes) == {f"worker-{n}": 10 for n in (1, 2, 3)}
    assert set(crew.played.values()) == {1}


async def test_what_a_worker_had_under_way_when_it_died_is_played_by_another_and_a_new_one_takes_its_place():
    notices, hung = [], asyncio.Event()

    async def hang_in_the_first(worker, given, on_retry):
        if worker.name == "worker-1":
            hung.set()
            await asyncio.Event().wait()
        return await score(worker, given, on_retry)

    crew = Crew(hang_in_the_first)
    async with WorkerPool(crew.start, 2, RunControl(), notices.append) as pool:
        playing = asyncio.create_task(play_all(pool, 20))
        await hung.wait()
        crew.workers[0].die()
        outcomes = await playing
        assert pool.names == ["worker-2", "worker-3"]
    assert all(isinstance(outcome, Scored) for outcome in outcomes)
    assert sum(crew.played.values()) == 30, "ten were lost, and those only were played again"
    assert "worker-1 was killed by SIGKILL" in notices[0]
    assert "(10)" in notices[0]


async def test_a_row_that_kills_every_worker_fails_by_name_and_takes_no_other_row_with_it():
    control = RunControl()

    async def kill_on_seven(worker, given, on_retry):
        if given["_ng_task_index"] == 7:
            worker.die()
        await asyncio.sleep(0.01)
        return await score(worker, given, on_retry)

    crew = Crew(kill_on_seven)
    async with WorkerPool(crew.start, 2, control) as pool:
        outcomes = await play_all(pool, 16)
    (failed,) = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert failed.row == row(7)
    assert (failed.failure.kind, failed.failure.retryable, failed.attempts) == ("worker_died", True, 3)
    assert "SIGKILL" in failed.failure.message
    assert crew.played[7] == 3
    assert control.abort_reason is None


async def test_a_run_whose_workers_keep_dying_is_given_up():
    control = RunControl()

    async def die(worker, given, on_retry):
        worker.die("exited with code 3")
        await asyncio.Event().wait()

    crew = Crew(die)
    async with WorkerPool(crew.start, 2, control) as pool:
        playing = asyncio.create_task(play_all(pool, 50))
        await wait_until(lambda: control.abort_reason is not None)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    assert len(crew.workers) <= 2 + 8
    assert "exited with code 3" in control.abort_reason
    assert "hint:" in control.abort_reason


async def test_a_worker_that_cannot_be_replaced_ends_the_run_with_the_reason():
    control, crew = RunControl(), Crew(score)

    async def start(name, on_data):
        if name != "worker-1":
            raise OSError("no memory")
        return await crew.start(name, on_data)

    async with WorkerPool(start, 1, control) as pool:
        await play_all(pool, 1)
        crew.workers[0].die()
        await wait_until(lambda: control.abort_reason is not None)
    assert "no memory" in control.abort_reason


async def test_when_one_worker_cannot_be_started_none_is_left_and_the_error_is_told():
    crew = Crew(score)

    async def start(name, on_data):
        if name == "worker-2":
            raise OSError("no memory")
        return await crew.start(name, on_data)

    with pytest.raises(OSError, match="no memory"):
        async with WorkerPool(start, 2, RunControl()):
            raise AssertionError("it must not begin")
    assert all(worker._ended.done() for worker in crew.workers)


async def test_a_rollout_that_is_cancelled_is_cancelled_in_its_worker():
    cancelled, hung = [], asyncio.Event()

    async def hang(worker, given, on_retry):
        hung.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(given)
            raise

    crew = Crew(hang)
    async with WorkerPool(crew.start, 1, RunControl()) as pool:
        playing = asyncio.create_task(pool.play(row(0)))
        await hung.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        for _ in range(10):
            await asyncio.sleep(0)
        assert cancelled == [row(0)]


async def test_a_run_hears_of_retries_and_pauses_in_its_workers():
    heard, overload = [], Failure("model_endpoint", "/v1/responses", True, "answered 429", "429")
    go_on = asyncio.Event()

    async def retry(worker, given, on_retry):
        with RETRIES.count("429"):
            on_retry(overload)
            await go_on.wait()
        return await score(worker, given, on_retry)

    async with WorkerPool(Crew(retry).start, 1, RunControl()) as pool:
        playing = asyncio.create_task(pool.play(row(0), heard.append))
        # One here, and one that the worker tells of.
        await wait_until(lambda: RETRIES.under_way().get("429", 0) > 1)
        assert heard == [overload]
        go_on.set()
        await playing
    assert RETRIES.under_way() == {}


async def test_a_mistake_of_ours_in_a_worker_is_the_failure_of_one_rollout():
    async def stumble(worker, given, on_retry):
        raise KeyError("x")

    async with WorkerPool(Crew(stumble).start, 1, RunControl()) as pool:
        outcome = await pool.play(row(0))
    assert outcome.failure.kind == "agent"
    assert "KeyError" in outcome.failure.message


# --- policy versions --------------------------------------------------------------------------------------------------


async def test_the_servers_of_every_worker_have_a_version_when_its_announcement_returns():
    crew = Crew(score)
    async with WorkerPool(crew.start, 3, RunControl()) as pool:
        assert await pool.announce({"version": 1}) == {}
        assert [worker.told for worker in crew.workers] == [[1]] * 3
        crew.workers[1].refuses = True
        assert await pool.announce({"version": 2}) == {"policy of worker-2": "it does not answer"}


async def test_a_worker_that_takes_the_place_of_a_dead_one_is_told_before_it_plays():
    crew, seen = Crew(score), []

    async def note_told(worker, given, on_retry):
        seen.append((worker.name, list(worker.told)))
        return await score(worker, given, on_retry)

    crew.play = note_told
    async with WorkerPool(crew.start, 1, RunControl()) as pool:
        await pool.announce({"version": 6})
        crew.workers[0].die()
        await wait_until(lambda: pool.names == ["worker-2"])
        await play_all(pool, 3)
    assert seen == [("worker-2", [6])] * 3


async def test_a_worker_that_dies_while_it_is_told_keeps_no_announcement_waiting():
    crew = Crew(score)
    async with WorkerPool(crew.start, 2, RunControl()) as pool:

        async def hang(announced):
            await asyncio.Event().wait()

        crew.workers[0].desk._tell_servers = hang
        announcing = asyncio.create_task(pool.announce({"version": 1}))
        await wait_until(lambda: crew.workers[1].told == [1])
        crew.workers[0].die()
        assert await announcing == {}
