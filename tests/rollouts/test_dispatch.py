# SPDX-License-Identifier: Apache-2.0
import asyncio
import random
import tracemalloc
from contextlib import aclosing

import pytest
from pydantic import ConfigDict

from nemo_gym._rollouts.control import FailureRateGuard, RunControl
from nemo_gym._rollouts.dispatch import dispatch
from nemo_gym._rollouts.limiter import AdaptiveLimit, AdaptiveSettings, FixedLimit
from nemo_gym._rollouts.outcomes import Failed, Scored, key_of
from nemo_gym._rollouts.play import Player, RetryRule, RetryRules
from nemo_gym._transport.failures import Failure
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import Body, SimpleResponsesAPIAgent
from nemo_gym.errors import RolloutFailure
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.testing import reply, running
from tests.support.clock import skip_time


def row(task):
    return {"_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": {"name": "agent"}}


def rows(number):
    return map(row, range(number))


def scored(row):
    return Scored(row, {**row, "reward": 1.0}, 1, 0.0)


def tasks_of(outcomes):
    return [key_of(outcome.row)[0] for outcome in outcomes]


async def at_once(row):
    return scored(row)


class Gate:
    """Plays that wait until they are let through, by task."""

    def __init__(self):
        self.waiting, self.arrivals = {}, asyncio.Queue()

    async def __call__(self, row):
        self.waiting[key_of(row)[0]] = opened = asyncio.Event()
        self.arrivals.put_nowait(row)
        await opened.wait()
        return scored(row)

    def open(self, *tasks):
        for task in tasks or list(self.waiting):
            self.waiting.pop(task).set()


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def collected(rows, play, limiter=None, control=None, **settings):
    return [
        outcome async for outcome in dispatch(rows, play, limiter or FixedLimit(8), control or RunControl(), **settings)
    ]


@pytest.mark.parametrize("number", [0, 1, 8, 1000])
async def test_every_row_comes_out_once(number):
    limiter = FixedLimit(8)
    outcomes = await collected(rows(number), at_once, limiter)
    assert sorted(tasks_of(outcomes)) == list(range(number))
    assert limiter.in_flight == 0


async def test_outcomes_come_as_they_end():
    gate = Gate()
    collecting = asyncio.create_task(collected(rows(3), gate))
    for task in (2, 0, 1):
        await settle()
        gate.open(task)
    assert tasks_of(await collecting) == [2, 0, 1]


async def test_no_more_run_than_the_limit_and_rows_are_pulled_one_ahead_at_most():
    pulled, gate = [], Gate()

    def watched():
        for task in range(100):
            pulled.append(task)
            yield row(task)

    collecting = asyncio.create_task(collected(watched(), gate, FixedLimit(5)))
    await settle()
    assert (sorted(gate.waiting), len(pulled)) == ([0, 1, 2, 3, 4], 6)
    gate.open(1, 3)
    await settle()
    assert (sorted(gate.waiting), len(pulled)) == ([0, 2, 4, 5, 6], 8)
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting


async def test_a_slow_consumer_holds_up_new_rollouts():
    pulled = 0

    def watched():
        nonlocal pulled
        for task in range(10_000):
            pulled += 1
            yield row(task)

    async with aclosing(dispatch(watched(), at_once, FixedLimit(100), RunControl())) as outcomes:
        taken = 0
        async for _ in outcomes:
            taken += 1
            await settle()
            assert pulled - taken <= 1000
            if taken == 500:
                break


async def test_a_play_that_raises_is_the_agents_failure_and_stops_nobody():
    async def play(row):
        if key_of(row)[0] == 1:
            raise ZeroDivisionError("a bug")
        return scored(row)

    outcomes = await collected(rows(3), play)
    (failed,) = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert (failed.failure.kind, failed.failure.retryable, failed.failure.boundary) == ("agent", False, "agent/run")
    assert failed.failure.message.startswith("ZeroDivisionError: a bug (in play, ")
    assert sorted(tasks_of(outcomes)) == [0, 1, 2]


async def test_a_row_without_an_agent_fails_like_any_other():
    async def post(agent, row):
        raise AssertionError("nobody to ask")

    player = Player(post, timeout_s=None)
    (outcome,) = await collected(iter([{"_ng_task_index": 0, "_ng_rollout_index": 0}]), player.play)
    assert (outcome.failure.kind, outcome.failure.boundary) == ("agent", "/run")
    assert "agent_ref" in outcome.failure.message


async def test_an_error_of_the_rows_is_raised_after_what_runs_was_yielded():
    def broken():
        yield row(0)
        yield row(1)
        raise ValueError("line 3 is not JSON")

    gate, outcomes = Gate(), []

    async def collect():
        async for outcome in dispatch(broken(), gate, FixedLimit(8), RunControl()):
            outcomes.append(outcome)

    collecting = asyncio.create_task(collect())
    await settle()
    assert not collecting.done()
    gate.open()
    with pytest.raises(ValueError, match="line 3"):
        await collecting
    assert sorted(tasks_of(outcomes)) == [0, 1]


async def test_stopped_once_it_starts_nothing_more_and_lets_what_runs_finish():
    gate, control = Gate(), RunControl()
    collecting = asyncio.create_task(collected(rows(100), gate, FixedLimit(4), control))
    await settle()
    await asyncio.to_thread(control.request_stop)
    gate.open(0)
    await settle()
    assert sorted(gate.waiting) == [1, 2, 3]
    gate.open()
    outcomes = await collecting
    assert (sorted(tasks_of(outcomes)), {type(outcome) for outcome in outcomes}) == ([0, 1, 2, 3], {Scored})


async def test_stopped_twice_it_cancels_what_runs_and_records_it_as_cancelled():
    gate, control, limiter = Gate(), RunControl(), FixedLimit(4)
    collecting = asyncio.create_task(collected(rows(100), gate, limiter, control))
    await settle()
    control.request_stop()
    control.request_stop()
    outcomes = await collecting
    assert sorted(tasks_of(outcomes)) == [0, 1, 2, 3]
    assert {(outcome.failure.kind, outcome.failure.retryable) for outcome in outcomes} == {("cancelled", True)}
    assert limiter.in_flight == 0


async def test_a_rollout_that_is_cancelled_before_its_first_step_is_not_lost():
    control, played = RunControl(), []

    def stopping():
        control.abort("enough")
        yield row(0)

    async def play(row):
        played.append(row)
        return scored(row)

    outcomes = await collected(stopping(), play, FixedLimit(1), control)
    assert [(outcome.failure.kind, key_of(outcome.row)) for outcome in outcomes] == [("cancelled", (0, 0))]
    assert played == []


LOST = Failure("tool_server", "/verify", False, "the connection broke", "broken")


async def test_a_failure_that_a_dead_server_explains_is_told_as_cancelled_once_the_death_is_known():
    control = RunControl()

    async def fail(row):
        asyncio.get_running_loop().call_soon(control.abort, "a server died")
        return Failed(row, LOST, 1, 0.0)

    outcomes = await collected(rows(1), fail, control=control, hold_failures_s=3600)
    assert [outcome.failure.kind for outcome in outcomes] == ["cancelled"]


@pytest.mark.parametrize(
    ("failure", "hold_s"),
    [
        (LOST, 0.01),
        (Failure("model_endpoint", "/v1/responses", False, "answered 401", "401"), 3600),
        (Failure("timeout", "/run", True, "no result within 1 s"), 3600),
    ],
)
async def test_a_failure_stays_what_it_is_and_only_what_a_dead_server_would_explain_waits(failure, hold_s):
    async def fail(row):
        return Failed(row, failure, 1, 0.0)

    outcomes = await collected(rows(3), fail, hold_failures_s=hold_s)
    assert [outcome.failure for outcome in outcomes] == [failure] * 3


async def test_a_rollout_that_ignores_its_cancellation_is_left_behind_as_cancelled():
    released, control = asyncio.Event(), RunControl()

    async def stubborn(row):
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return scored(row)

    collecting = asyncio.create_task(collected(rows(3), stubborn, control=control, cancel_grace_s=0.01))
    await settle()
    control.abort("enough")
    outcomes = await collecting
    assert [outcome.failure.kind for outcome in outcomes] == ["cancelled"] * 3
    released.set()
    await settle()


async def test_a_run_that_was_stopped_before_it_began_starts_nothing():
    control = RunControl()
    control.request_stop()
    assert await collected(rows(3), at_once, control=control) == []


async def test_a_consumer_that_leaves_early_leaves_nothing_running():
    gate = Gate()

    async def play(row):
        return scored(row) if key_of(row)[0] == 0 else await gate(row)

    before = asyncio.all_tasks()
    async with aclosing(dispatch(rows(100), play, FixedLimit(8), RunControl())) as outcomes:
        async for _ in outcomes:
            break
    assert asyncio.all_tasks() == before


async def test_the_limit_may_grow_while_nothing_ends():
    now_s, gate = 0.0, Gate()
    limiter = AdaptiveLimit(AdaptiveSettings(start=2, unseen_maximum=4), clock=lambda: now_s)
    collecting = asyncio.create_task(collected(rows(4), gate, limiter))
    await settle()
    assert len(gate.waiting) == 2
    now_s = 1.0
    for _ in range(4):
        await gate.arrivals.get()
    gate.open()
    assert len(await collecting) == 4


async def test_an_exploding_failure_rate_ends_the_run_with_its_cause():
    control, guard, played = RunControl(), FailureRateGuard(0.5), []

    async def play(row):
        played.append(row)
        return Failed(row, Failure("model_endpoint", "m", True, "answered 500"), 3, 0.0)

    async for outcome in dispatch(rows(100_000), play, FixedLimit(64), control):
        if reason := guard.note(outcome):
            control.abort(reason)
    assert len(played) < 1000
    assert "most common cause, " in control.abort_reason
    assert "model_endpoint at m: answered 500" in control.abort_reason


async def test_memory_stays_flat_over_many_rollouts():
    async def peak_bytes(number):
        tracemalloc.reset_peak()
        count = 0
        async for _ in dispatch(rows(number), at_once, FixedLimit(256), RunControl()):
            count += 1
        assert count == number
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        small, large = await peak_bytes(2_000), await peak_bytes(20_000)
    finally:
        tracemalloc.stop()
    assert large < 1.2 * small
    assert large < 1_500_000


async def test_with_faults_of_all_kinds_every_rollout_is_accounted_for():
    rng, control, limiter = random.Random(3), RunControl(), AdaptiveLimit()
    kinds = ["model_endpoint", "model_reply_invalid", "timeout", "tool_server", "verifier", "agent"]

    async def play(row):
        await asyncio.sleep(0)
        luck = rng.random()
        if luck < 0.3:
            return Failed(row, Failure(rng.choice(kinds), "x", True, "POST u answered 429"), 3, 0.0)
        if luck < 0.35:
            raise RuntimeError("a bug")
        return scored(row)

    outcomes = await collected(rows(3000), play, limiter, control)
    assert sorted(tasks_of(outcomes)) == list(range(3000))
    assert (limiter.in_flight, limiter.limit >= 1) == (0, True)


class Run(BaseRunRequest):
    model_config = ConfigDict(extra="allow")
    fault: str | None = None


class Seen(BaseVerifyResponse):
    rollout: str | None


class Agent(SimpleResponsesAPIAgent):
    """Fails as its rows say."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        return reply("unused")

    async def run(self, body: Run = Body()) -> Seen:
        if body.fault == "hang":
            await asyncio.Event().wait()
        if body.fault is not None:
            raise RolloutFailure(body.fault, "as the row says", retryable=True)
        return Seen(
            responses_create_params=body.responses_create_params,
            response=reply("done"),
            reward=1.0,
            rollout=current_rollout_id(),
        )


async def test_with_a_real_agent_each_rollout_ends_as_it_should_and_knows_its_own_id():
    faults = [None, "hang", "model_endpoint", "verifier", None]
    given = [{**row(n), "responses_create_params": {"input": "hi"}, "fault": faults[n % 5]} for n in range(50)]
    rules = RetryRules(other=RetryRule(2, 0.001), by_kind={})
    async with running(agent=Agent) as client:

        async def post(agent, whole_row):
            return await client.post(agent, "/run", json=whole_row)

        player = Player(post, timeout_s=600.0, retries=rules)
        ended = []

        async def play(whole_row, *others):
            outcome = await player.play(whole_row, *others)
            ended.append(outcome)
            if len(ended) == 40:  # all but those that hang
                skip_time(600)
            return outcome

        outcomes = await collected(iter(given), play, FixedLimit(50))
    expected = {None: None, "hang": "timeout", "model_endpoint": "model_endpoint", "verifier": "verifier"}
    assert len(outcomes) == 50
    for outcome in outcomes:
        if isinstance(outcome, Scored):
            assert outcome.row["fault"] is None
            assert outcome.result["rollout"] == f"{key_of(outcome.row)[0]}-0"
        else:
            assert outcome.failure.kind == expected[outcome.row["fault"]]
            assert outcome.attempts == (1 if outcome.row["fault"] == "hang" else 2)
