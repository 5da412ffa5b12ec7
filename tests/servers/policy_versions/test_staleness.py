# SPDX-License-Identifier: Apache-2.0
import asyncio
import random
import threading
from contextlib import aclosing

import pytest
from hypothesis import given, strategies as st

from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.dispatch import dispatch
from nemo_gym._rollouts.limiter import FixedLimit, StalenessLimit
from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._servers.policy_versions.announcing import PolicyVersionRefused
from nemo_gym._servers.policy_versions.staleness import StalenessGate, StalenessTimeout
from nemo_gym._transport.failures import Failure

FAILURE = Failure("agent", "agent/run", False, "broken")


def row(task):
    return {"_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": {"name": "agent"}}


@given(
    bound=st.integers(0, 3),
    batch=st.integers(1, 5),
    first=st.integers(0, 100),
    failing=st.floats(0, 0.9),
    seed=st.integers(0, 2**32),
)
def test_what_is_trained_on_in_the_order_of_admission_is_never_older_than_the_bound(bound, batch, first, failing, seed):
    rng, gate = random.Random(seed), StalenessGate(bound, batch, first)
    version, under_way, trained = first, [], 0
    for _ in range(400):
        if gate.try_admit():
            under_way.append(version)
            if rng.random() < failing:
                under_way.pop()
                gate.give_back()
        elif len(under_way) >= batch:  # a trainer that steps only when nothing more is admitted: the worst case
            taken, under_way = under_way[:batch], under_way[batch:]
            assert all(version - began <= bound for began in taken)
            trained += batch
            version += 1
            gate.announce(version)
        else:
            pytest.fail("neither the trainer nor the rollouts can go on")
    assert gate.admitted == trained + len(under_way)


async def test_rollouts_wait_for_a_version_and_go_on_in_turn_when_it_comes():
    gate, order = StalenessGate(0, 2, version=5), []

    async def begin(name):
        order.append((name, await gate.admit(timeout_s=60)))

    tasks = [asyncio.create_task(begin(name)) for name in "abcde"]
    await asyncio.sleep(0)
    assert order == [("a", 5), ("b", 5)]
    gate.announce(6)
    await asyncio.gather(*tasks[:4])
    assert order[2:] == [("c", 6), ("d", 6)]
    gate.announce(7)
    await tasks[4]
    assert (gate.admitted, gate.free) == (5, 1)


async def test_a_failed_rollout_gives_its_place_to_the_next():
    gate = StalenessGate(0, 1, version=0)
    await gate.admit()
    waiting = asyncio.create_task(gate.admit(timeout_s=60))
    await asyncio.sleep(0)
    gate.give_back()
    assert await waiting == 0


async def test_a_group_begins_together_or_not_at_all():
    gate = StalenessGate(0, 4, version=0)
    await gate.admit(2)
    group = asyncio.create_task(gate.admit(4, timeout_s=60))
    await asyncio.sleep(0)
    assert not gate.try_admit(1), "nobody goes before the group that waits"
    gate.announce(1)
    await group
    assert gate.free == 2
    with pytest.raises(ValueError, match="5 rollouts can never begin together: at most 4"):
        await gate.admit(5)


async def test_a_wait_ends_at_its_deadline_and_says_what_is_missing():
    gate = StalenessGate(1, 1, version=3)
    await gate.admit(2)
    with pytest.raises(StalenessTimeout, match=r"(?s)2 were admitted.*policy version 3 .*hint: the trainer announces"):
        await gate.admit(timeout_s=0.01)
    gate.announce(4)
    assert gate.try_admit(), "who gave up holds no place"


async def test_a_wait_that_is_cancelled_leaves_no_trace():
    gate = StalenessGate(0, 1, version=0)
    await gate.admit()
    first, second = (asyncio.create_task(gate.admit(timeout_s=60)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.announce(1)
    assert await second == 1
    # Cancelled in the very moment in which it got its place: the place is for the next one.
    third, fourth = (asyncio.create_task(gate.admit(timeout_s=60)) for _ in range(2))
    await asyncio.sleep(0)
    gate.announce(2)
    third.cancel()
    assert await fourth == 2


async def test_nothing_begins_before_the_first_version_is_known():
    gate = StalenessGate(1, 2, version=None)
    waiting = asyncio.create_task(gate.admit(timeout_s=60))
    await asyncio.sleep(0)
    assert not waiting.done()
    with pytest.raises(StalenessTimeout, match="announces the version it starts with"):
        await gate.admit(timeout_s=0.01)
    gate.announce(120)
    assert await waiting == 120
    assert gate.free == 3, "a trainer that starts at version 120 has no use for 121 batches"


async def test_versions_may_be_announced_from_the_thread_of_a_trainer():
    gate = StalenessGate(0, 1, version=0)
    await gate.admit()
    waiting = asyncio.create_task(gate.admit(timeout_s=60))
    await asyncio.sleep(0)
    thread = threading.Thread(target=gate.announce, args=(1,))
    thread.start()
    assert await waiting == 1
    thread.join()


def test_a_gate_does_not_go_back_unless_the_trainer_has_restarted():
    gate = StalenessGate(0, 2, version=0)
    assert gate.try_admit(2)
    gate.announce(1)
    assert gate.try_admit(1)
    with pytest.raises(PolicyVersionRefused):
        gate.announce(0)
    gate.announce(0, restart=True)
    assert gate.free == 1, "one of the three cannot have been trained on yet"
    gate.give_back()
    assert gate.try_admit(2), "the trainer has lost it"


@pytest.mark.parametrize(("bound", "batch"), [(-1, 1), (0, 0)])
def test_a_gate_that_could_admit_nothing_is_refused(bound, batch):
    with pytest.raises(ValueError, match="batch_size"):
        StalenessGate(bound, batch, 0)


# --- in a run ---------------------------------------------------------------------------------------------------------


async def test_a_run_holds_rollouts_back_until_a_version_comes_and_drops_none():
    gate, control = StalenessGate(0, 3, version=0), RunControl()
    limiter = StalenessLimit(FixedLimit(2), gate, timeout_s=60, give_up=control.abort)
    ended, began = [], []

    async def play(given):
        began.append(gate.version)
        await asyncio.sleep(0)
        return Scored(given, {**given, "reward": 1.0}, 1, 0.0)

    async with aclosing(dispatch(map(row, range(8)), play, limiter, control)) as outcomes:
        async for outcome in outcomes:
            ended.append(outcome.row["_ng_task_index"])
            if len(ended) in (3, 6):
                assert limiter.in_flight == 0, "nothing runs, and the run goes on all the same"
                gate.announce(gate.version + 1)
    assert (sorted(ended), began) == (list(range(8)), [0] * 3 + [1] * 3 + [2] * 2)
    assert limiter.most_in_flight == limiter.limit == 2


async def test_failures_in_a_run_make_room_for_others():
    control = RunControl()
    limiter = StalenessLimit(FixedLimit(4), StalenessGate(0, 2, version=0), timeout_s=60, give_up=control.abort)

    async def play(given):
        return Failed(given, FAILURE, 1, 0.0)

    async with aclosing(dispatch(map(row, range(20)), play, limiter, control)) as outcomes:
        assert len([outcome async for outcome in outcomes]) == 20


async def test_a_run_whose_trainer_is_gone_is_given_up_and_keeps_its_rows():
    control, now = RunControl(), [0.0]

    def clock():
        now[0] += 40.0
        return now[0]

    gate = StalenessGate(0, 1, version=0)
    limiter = StalenessLimit(FixedLimit(4), gate, timeout_s=60, give_up=control.abort, clock=clock)

    async def play(given):
        return Scored(given, {**given, "reward": 1.0}, 1, 0.0)

    async with aclosing(dispatch(map(row, range(3)), play, limiter, control)) as outcomes:
        played = [outcome.row["_ng_task_index"] async for outcome in outcomes]
    assert played == [0]
    assert "no new rollout could begin" in control.abort_reason
