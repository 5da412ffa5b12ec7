# SPDX-License-Identifier: Apache-2.0
"""Lending a bounded number of workers: none is lent twice, none is lost, and the queue is bounded and fair."""

import asyncio

import pytest

from nemo_gym._isolation import lent_workers as workers
from nemo_gym._isolation.lent_workers import PoolClosed, PoolFull, Slots


class Worker:
    def __init__(self):
        self.is_usable, self.has_ended = True, False

    def end(self):
        self.is_usable, self.has_ended = False, True


class Factory:
    """Starts workers when told to."""

    def __init__(self):
        self.started, self.may_start = [], asyncio.Event()
        self.may_start.set()

    async def __call__(self):
        await self.may_start.wait()
        self.started.append(Worker())
        return self.started[-1]


def slots(factory, size=1, max_queue=10):
    return Slots("test pool", factory, size=size, max_queue=max_queue)


async def test_workers_are_started_when_needed_and_lent_again():
    factory = Factory()
    pool = slots(factory, size=2)
    assert not factory.started
    for _ in range(3):
        async with pool.lend():
            pass
    assert len(factory.started) == 1
    async with pool.lend() as one, pool.lend() as other:
        assert one is not other
    assert len(factory.started) == 2


async def test_those_who_wait_get_their_turn_in_order():
    pool, order = slots(Factory()), []

    async def use(number):
        async with pool.lend():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*map(use, range(5)))
    assert order == list(range(5))


async def test_a_worker_that_is_not_usable_any_more_is_replaced():
    factory = Factory()
    pool = slots(factory)
    async with pool.lend() as worker:
        worker.is_usable = False
    assert worker.has_ended
    async with pool.lend() as other:
        assert other is not worker


async def test_a_worker_that_fails_to_start_leaves_its_place_free():
    attempts = []

    async def start():
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("no more processes")
        return Worker()

    pool = slots(start)
    with pytest.raises(OSError, match="no more processes"):
        async with pool.lend():
            pass
    async with pool.lend() as worker:
        assert worker.is_usable


async def test_a_worker_whose_caller_left_while_it_started_is_for_the_next():
    factory = Factory()
    factory.may_start.clear()
    pool = slots(factory)

    async def use():
        async with pool.lend() as worker:
            return worker

    impatient = asyncio.ensure_future(use())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    factory.may_start.set()
    await asyncio.sleep(0.01)
    assert await use() is factory.started[0]
    assert len(factory.started) == 1


async def test_more_than_the_queue_holds_is_refused():
    pool = slots(Factory(), max_queue=1)
    async with pool.lend():
        waiting = asyncio.ensure_future(pool.lend().__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(PoolFull):
            await pool.lend().__aenter__()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with pool.lend():
        pass


async def test_closing_ends_workers_and_turns_away_those_who_wait():
    factory = Factory()
    pool = slots(factory)
    async with pool.lend() as worker:
        waiting = asyncio.ensure_future(pool.lend().__aenter__())
        await asyncio.sleep(0)
        assert pool.end() == [worker]
        assert worker.has_ended
    with pytest.raises(PoolClosed):
        await waiting
    with pytest.raises(PoolClosed):
        await pool.lend().__aenter__()


async def test_a_worker_that_was_being_started_when_the_pool_closed_is_ended():
    factory = Factory()
    factory.may_start.clear()
    pool = slots(factory)
    starting = asyncio.ensure_future(pool.lend().__aenter__())
    await asyncio.sleep(0)
    assert pool.end() == []
    factory.may_start.set()
    with pytest.raises(PoolClosed):
        await starting
    assert [worker.has_ended for worker in factory.started] == [True]


async def test_workers_that_are_started_early_are_no_more_than_there_may_be():
    factory = Factory()
    pool = slots(factory, size=2)
    async with pool.lend():
        await pool.start(5)
        assert len(factory.started) == 2


@pytest.mark.parametrize(("size", "max_queue"), [(0, 1), (1, -1)])
async def test_a_pool_without_workers_makes_no_sense(size, max_queue):
    with pytest.raises(ValueError, match="test pool"):
        slots(Factory(), size, max_queue)


async def test_a_worker_that_nobody_needs_for_a_while_is_ended(monkeypatch):
    monkeypatch.setattr(workers, "MAX_IDLE_S", 0.01)
    pool = slots(Factory(), size=2)
    async with pool.lend() as busy:
        async with pool.lend() as idle:
            pass
        async with asyncio.timeout(300):
            while not idle.has_ended:  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0.01)
        assert not busy.has_ended
