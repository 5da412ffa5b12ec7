# SPDX-License-Identifier: Apache-2.0
"""Results as they finish."""

import asyncio

import pytest

from nemo_gym._util.off_the_loop import AsFinished


async def give(value, after=0.0):
    await asyncio.sleep(after)
    return value


async def test_what_finishes_first_comes_first():
    assert [await one for one in AsFinished([give("late", 0.2), give("early")])] == ["early", "late"]


async def test_an_awaitable_outlives_the_iterator_that_has_yielded_it():
    assert await next(AsFinished([give("only")])) == "only"
    assert sorted(await asyncio.gather(*AsFinished([give(1, 0.01), give(2)]))) == [1, 2]


async def test_what_nobody_can_await_any_more_is_cancelled():
    ended = asyncio.Event()

    async def wait_forever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    finishing = AsFinished([give(1), wait_forever()])
    assert await next(finishing) == 1
    waiter = asyncio.ensure_future(next(finishing))
    del finishing
    await asyncio.sleep(0)
    assert not ended.is_set(), "somebody awaits it"
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    del waiter
    async with asyncio.timeout(300):
        await ended.wait()
