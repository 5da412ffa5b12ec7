# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from responses_api_models.local_model.gate import Gate, GateFull


class Visitor:
    """Stays inside until it is told to go."""

    def __init__(self, gate: Gate, max_waiting: int = 10) -> None:
        self.entered, self._go = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self._visit(gate, max_waiting))

    async def _visit(self, gate: Gate, max_waiting: int) -> None:
        async with gate.hold_place(max_waiting):
            self.entered.set()
            await self._go.wait()

    async def leave(self) -> None:
        self._go.set()
        await self.task


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_as_many_enter_as_there_are_places_and_the_others_follow_in_order() -> None:
    gate = Gate(1)
    first, second, third = Visitor(gate), Visitor(gate), Visitor(gate)
    await settle()
    assert (first.entered.is_set(), second.entered.is_set(), gate.inside, gate.waiting) == (True, False, 1, 2)
    await first.leave()
    await settle()
    assert (second.entered.is_set(), third.entered.is_set()) == (True, False)
    await second.leave()
    await third.leave()
    assert (gate.inside, gate.waiting) == (0, 0)


async def test_more_than_may_wait_are_refused_with_a_time_to_come_back() -> None:
    gate = Gate(1)
    inside, waiting = Visitor(gate, 1), Visitor(gate, 1)
    await settle()
    with pytest.raises(GateFull) as refused:
        async with gate.hold_place(1):
            pass
    assert refused.value.waiting == 1
    assert refused.value.retry_after_s >= 1
    await inside.leave()
    await waiting.leave()


async def test_one_who_gives_up_while_waiting_holds_nobody_up() -> None:
    gate = Gate(1)
    first, second, third = Visitor(gate), Visitor(gate), Visitor(gate)
    await settle()
    second.task.cancel()
    await settle()
    assert gate.waiting == 1
    await first.leave()
    await settle()
    assert third.entered.is_set()
    await third.leave()
    assert gate.inside == 0


async def test_one_who_gives_up_in_the_moment_of_its_turn_passes_the_place_on() -> None:
    gate = Gate(1)
    first, second, third = Visitor(gate), Visitor(gate), Visitor(gate)
    await settle()
    gate._leave()  # hands the place over: the second one is to be woken at the loop's next turn
    second.task.cancel()
    await settle()
    assert third.entered.is_set()
    await third.leave()
    first.task.cancel()
