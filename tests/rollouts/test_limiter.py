# SPDX-License-Identifier: Apache-2.0
import heapq
import random

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._rollouts.limiter import AdaptiveLimit, AdaptiveSettings, FixedLimit, is_overload
from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._transport.failures import Failure

REFUSED = Failure("model_endpoint", "m", True, "POST http://m/v1/responses answered 429 Too Many Requests: slow down")
LATE = Failure("timeout", "m", True, "no result within 600 s")
BUG = Failure("agent", "a", False, "ZeroDivisionError")
STOPPED = Failure("cancelled", "a", True, "stopped")
SCORED = Scored({}, {}, 1, 0.0)
SCORED_LATER = Scored({}, {}, 3, 0.0)


def failed(failure):
    return Failed({}, failure, 1, 0.0)


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class Simulation:
    """As many rollouts as the limit lets in, against `endpoint(busy_with)` -> (outcome, latency)."""

    def __init__(self, endpoint, **settings):
        self.clock = Clock()
        self.limiter = AdaptiveLimit(AdaptiveSettings(**settings), clock=self.clock)
        self.endpoint, self.running, self.outcomes = endpoint, [], []
        self.peak = self.busy_with = 0

    def run_until(self, end_s):
        while self.clock.now_s < end_s:
            while self.limiter.acquire():
                outcome, latency_s = self.endpoint(self.busy_with + 1)
                self.busy_with += outcome is SCORED
                heapq.heappush(self.running, (self.clock.now_s + latency_s, len(self.outcomes), latency_s, outcome))
                self.outcomes.append(outcome)
                self.peak = max(self.peak, self.limiter.in_flight)
            next_end_s, _, latency_s, outcome = self.running[0]
            if next_end_s > self.clock.now_s + 0.5:  # the dispatcher asks again that often
                self.clock.now_s += 0.5
                continue
            heapq.heappop(self.running)
            self.clock.now_s = max(self.clock.now_s, next_end_s)
            self.busy_with -= outcome is SCORED
            self.limiter.release(outcome, latency_s)
        return self.limiter.limit


def test_a_fixed_limit_stays_as_it_is():
    limiter = FixedLimit(2)
    assert [limiter.acquire() for _ in range(3)] == [True, True, False]
    limiter.release(failed(REFUSED), 1.0)
    limiter.note_retry(REFUSED)
    assert (limiter.limit, limiter.in_flight, limiter.acquire()) == (2, 1, True)
    assert limiter.most_in_flight == 2


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (REFUSED, True),
        (LATE, True),
        (Failure("model_endpoint", "m", True, "POST u answered 503 Service Unavailable: "), True),
        (Failure("model_endpoint", "m", True, "POST u answered 500 Internal Server Error: "), False),
        (Failure("agent", "a", False, "ValueError: the rate limit of a pump"), False),
        (BUG, False),
    ],
)
def test_overload_is_a_missed_deadline_or_a_refusal(failure, expected):
    assert is_overload(failure) is expected


@given(
    start=st.integers(1, 200),
    maximum=st.integers(1, 300),
    steps=st.lists(
        st.tuples(
            st.sampled_from([SCORED, SCORED, SCORED_LATER, *map(failed, (REFUSED, LATE, BUG, STOPPED)), "retried"]),
            st.integers(1, 40),
            st.floats(0.0, 100.0),
        ),
        max_size=60,
    ),
)
@settings(max_examples=100, deadline=None)
def test_the_limit_stays_between_one_and_the_maximum_and_admits_no_more_than_it_says(start, maximum, steps):
    clock = Clock()
    limiter = AdaptiveLimit(AdaptiveSettings(start=start, maximum=maximum), clock=clock)
    most = 0
    for outcome, times, latency_s in steps:
        clock.now_s += latency_s / 10
        while limiter.acquire():
            assert limiter.in_flight <= limiter.limit
        most = max(most, limiter.in_flight)
        assert limiter.most_in_flight == most
        for _ in range(min(times, limiter.in_flight)):
            if outcome == "retried":
                limiter.note_retry(REFUSED)
            else:
                limiter.release(outcome, latency_s)
            assert 1 <= limiter.limit <= maximum
            assert limiter.in_flight >= 0


@pytest.mark.parametrize("latency_s", [0.01, 0.05, 0.2])
def test_with_a_fast_endpoint_hundreds_run_within_a_second_or_two(latency_s):
    simulation = Simulation(lambda n: (SCORED, latency_s))
    simulation.run_until(1.5)
    assert simulation.peak >= 500


def test_a_fast_endpoint_whose_latency_is_our_own_queue_still_gets_hundreds():
    simulation = Simulation(lambda n: (SCORED, n / 1000))  # a thousand a second, whatever runs
    simulation.run_until(3.0)
    assert 300 <= simulation.peak <= 1024


def test_while_nothing_has_ended_the_limit_grows_with_time_up_to_a_bound():
    simulation = Simulation(lambda n: (SCORED, 600.0))
    simulation.run_until(2.6)
    assert 64 <= simulation.limiter.limit <= 128
    assert simulation.run_until(500.0) == 256


def test_the_limit_settles_where_latency_stops_to_hold():
    capacity = 100
    simulation = Simulation(lambda n: (SCORED, 5.0 * max(1.0, n / capacity)))
    simulation.run_until(3600.0)
    assert capacity <= simulation.limiter.limit <= 5 * capacity


def test_later_tasks_that_are_only_longer_do_not_starve_the_run():
    simulation = Simulation(lambda n: (SCORED, 1.0))
    simulation.run_until(10.0)
    simulation.endpoint = lambda n: (SCORED, 60.0)
    simulation.run_until(3600.0)
    assert simulation.limiter.limit >= 200


def test_the_limit_settles_where_the_endpoint_refuses():
    capacity = 100
    simulation = Simulation(lambda n: (SCORED, 2.0) if n <= capacity else (failed(REFUSED), 1.0))
    simulation.run_until(300.0)
    settled = len(simulation.outcomes)
    simulation.run_until(600.0)
    scored = sum(outcome is SCORED for outcome in simulation.outcomes[settled:])
    assert 0.8 * capacity <= simulation.limiter.limit <= 1.3 * capacity
    assert scored >= 0.9 * 300 * capacity / 2.0


@pytest.mark.parametrize("failure", [REFUSED, LATE])
def test_when_everything_is_refused_or_late_the_limit_halves_each_round_down_to_one(failure):
    clock = Clock()
    limiter = AdaptiveLimit(AdaptiveSettings(start=64), clock=clock)
    seen = [64]
    while seen[-1] > 1:
        clock.now_s += 1.0
        limiter.acquire()
        limiter.release(failed(failure), 1.0)
        if limiter.limit != seen[-1]:
            seen.append(limiter.limit)
    assert seen == [64, 32, 16, 8, 4, 2, 1]


def test_a_retry_because_of_overload_counts_before_the_rollout_ends():
    limiter = AdaptiveLimit(AdaptiveSettings(start=16), clock=Clock())
    for _ in range(16):
        limiter.acquire()
        limiter.note_retry(REFUSED)
    assert (limiter.limit, limiter.in_flight) == (8, 16)
    assert not limiter.acquire()


def test_a_steady_few_per_cent_of_refusals_do_not_starve_the_run():
    rng = random.Random(7)
    simulation = Simulation(lambda n: (SCORED, 1.0) if rng.random() > 0.05 else (failed(REFUSED), 0.1))
    simulation.run_until(120.0)
    assert simulation.limiter.limit >= 200


def test_the_limit_does_not_grow_when_it_is_not_used():
    limiter = AdaptiveLimit(AdaptiveSettings(start=16), clock=Clock())
    for _ in range(100):
        assert limiter.acquire()
        limiter.release(SCORED, 0.1)
    assert limiter.limit == 16


def test_bugs_and_cancellations_say_nothing_about_the_endpoint():
    limiter = AdaptiveLimit(AdaptiveSettings(start=4), clock=Clock())
    for outcome in [failed(BUG), failed(STOPPED)] * 50:
        while limiter.acquire():
            pass
        limiter.release(outcome, 0.1)
    assert limiter.limit == 4


def test_the_limit_recovers_after_an_outage():
    simulation = Simulation(lambda n: (SCORED, 0.5))
    simulation.run_until(5.0)
    simulation.endpoint = lambda n: (failed(REFUSED), 0.05)
    assert simulation.run_until(8.0) <= 2
    simulation.endpoint = lambda n: (SCORED, 0.5)
    assert simulation.run_until(60.0) >= 200
