# SPDX-License-Identifier: Apache-2.0
"""Deadlines of calls that are made inside of calls."""

import asyncio
import sys

import pytest

from nemo_gym._transport import deadline
from nemo_gym._transport.call_errors import ServerDeadlineExceeded
from nemo_gym._transport.deadline import Deadline, await_within


async def never():
    await asyncio.get_running_loop().create_future()


async def timers_during(work):
    """How many timers the event loop was asked for while `work` ran."""
    loop, asked = asyncio.get_running_loop(), []
    call_at = loop.call_at
    loop.call_at = lambda when, *args, **kwargs: asked.append(when) or call_at(when, *args, **kwargs)
    try:
        await work
    finally:
        del loop.call_at
    return len(asked)


async def test_a_call_that_takes_too_long_names_itself_and_its_deadline():
    with pytest.raises(ServerDeadlineExceeded, match=r"POST.*/verify.*0\.01 s"):
        await await_within(0.01, "POST", "http://a/verify", never())
    assert asyncio.current_task().cancelling() == 0, "the task goes on as if nothing had been cancelled"


async def test_the_earlier_deadline_ends_it_whichever_is_outside():
    with pytest.raises(ServerDeadlineExceeded, match=r"http://inner"):
        await await_within(60, "POST", "http://outer", await_within(0.01, "POST", "http://inner", never()))
    with pytest.raises(ServerDeadlineExceeded, match=r"http://outer"):
        await await_within(0.01, "POST", "http://outer", await_within(60, "POST", "http://inner", never()))


async def test_a_call_inside_of_an_earlier_deadline_needs_no_timer_of_its_own():
    inner = await_within(60, "POST", "http://b", asyncio.sleep(0))
    assert await timers_during(await_within(50, "POST", "http://a", inner)) == 1


async def test_calls_whose_deadlines_are_far_away_share_a_timer():
    async def many():
        for _ in range(100):
            await await_within(3600, "POST", "http://a", asyncio.sleep(0))

    assert await timers_during(many()) <= 2  # a second may pass meanwhile


async def test_calls_that_have_ended_leave_no_room_behind_until_their_deadlines():
    async def crowd():
        await asyncio.gather(*(await_within(3600, "POST", "http://a", asyncio.sleep(0)) for _ in range(1_000)))

    await crowd()
    held = list(deadline._all_alarms[asyncio.get_running_loop()].by_second.values())
    assert held
    assert all(sys.getsizeof(alarm) == sys.getsizeof(set()) for alarm in held)


async def test_a_deadline_far_away_ends_its_own_call_and_no_other(monkeypatch):
    monkeypatch.setattr(deadline, "_FAR_S", 0.0)  # all are far away
    ended = await await_within(0.01, "POST", "http://quick", asyncio.sleep(0, "in time"))
    outcomes = await asyncio.gather(
        await_within(0.01, "POST", "http://a/verify", never()),
        await_within(0.01, "POST", "http://b/verify", never()),
        await_within(60, "POST", "http://c", asyncio.sleep(1.2, "not yet")),
        return_exceptions=True,
    )
    assert ended == "in time"
    assert [type(outcome).__name__ for outcome in outcomes[:2]] == ["ServerDeadlineExceeded"] * 2
    assert outcomes[2] == "not yet"
    assert asyncio.current_task().cancelling() == 0


async def test_a_deadline_that_has_ended_covers_nothing():
    async def one_after_another():
        await await_within(50, "POST", "http://a", asyncio.sleep(0))
        await await_within(60, "POST", "http://b", asyncio.sleep(0))

    assert await timers_during(one_after_another()) == 2


async def test_a_task_that_outlives_the_call_which_started_it_has_a_deadline_of_its_own():
    started = []

    async def starts_another():
        started.append(asyncio.create_task(await_within(0.05, "POST", "http://detached", never())))
        await asyncio.sleep(0)

    with pytest.raises(ServerDeadlineExceeded, match="http://outer"):
        await await_within(0.01, "POST", "http://outer", asyncio.wait_for(_after(starts_another), None))
    with pytest.raises(ServerDeadlineExceeded, match="http://detached"):
        await started[0]


async def _after(begin):
    await begin()
    await never()


async def test_who_cancels_from_outside_is_heard_beside_a_deadline():
    task = asyncio.create_task(await_within(60, "POST", "http://a", never()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_deadline_says_whether_it_was_the_one_that_cancelled():
    soon = Deadline(asyncio.get_running_loop().time() + 0.01)
    try:
        with pytest.raises(asyncio.CancelledError):
            await never()
        assert soon.has_cancelled()
    finally:
        soon.end()
    await asyncio.sleep(0)  # would raise if the cancellation had not been taken back
