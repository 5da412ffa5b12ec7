# SPDX-License-Identifier: Apache-2.0
"""The simulator beside closed forms: Little's law, one bottleneck, and bounds that hold for every closed network."""

import time

import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, integers

from nemo_gym._bench.plan.bounds import (
    COORDINATOR_CPU,
    ENDPOINT_IN_FLIGHT,
    ENDPOINT_REQUESTS,
    ENDPOINT_TOKENS,
    IN_FLIGHT,
    VERIFIER_CPU,
    WORKER_CPU,
    bounds_of,
    tightest,
)
from nemo_gym._bench.plan.distributions import Exponential, Fixed, LogNormal
from nemo_gym._bench.plan.scenario import Cluster, Constants, Endpoint, Scenario, Workload
from nemo_gym._bench.plan.simulate import simulate

FREE = Constants("nowhere", 0, 0, 0, 100, 0.1, 0)
REAL = Constants("a laptop", 600e-6, 500e-6, 50e-6, 100, 0.1, 1.5)
FEW_EVENTS = 6_000
few = settings(max_examples=15, deadline=None)


def rate(scenario: Scenario) -> float:
    return simulate(scenario, most_events=FEW_EVENTS).rollouts_per_s


@few
@given(integers(1, 300), floats(0.01, 30), integers(1, 8))
def test_a_run_that_only_waits_obeys_littles_law(in_flight, latency_s, turns):
    workload = Workload(Fixed(latency_s), Fixed(turns))
    scenario = Scenario(workload, Endpoint(), Cluster(), FREE, in_flight)
    assert rate(scenario) == pytest.approx(in_flight / (turns * latency_s), rel=0.02)


@few
@given(integers(1, 1_000_000), floats(0.01, 30))
def test_littles_law_holds_when_a_simulated_rollout_stands_for_thousands(in_flight, latency_s):
    scenario = Scenario(Workload(Fixed(latency_s)), Endpoint(), Cluster(nodes=1000), FREE, in_flight)
    assert rate(scenario) == pytest.approx(in_flight / latency_s, rel=0.02)


@few
@given(integers(1, 40), integers(100, 400), floats(0.05, 5))
def test_an_endpoint_that_takes_k_at_once_gives_k_by_latency(limit, in_flight, latency_s):
    workload = Workload(Fixed(latency_s))
    scenario = Scenario(workload, Endpoint(in_flight=limit), Cluster(), FREE, in_flight)
    assert tightest(bounds_of(scenario)) == ENDPOINT_IN_FLIGHT
    assert rate(scenario) == pytest.approx(limit / latency_s, rel=0.05)


@few
@given(floats(1, 100), integers(1, 4))
def test_a_rate_limit_is_shared_by_the_turns(requests_per_s, turns):
    workload = Workload(Fixed(0.01), Fixed(turns))
    scenario = Scenario(workload, Endpoint(requests_per_s=requests_per_s), Cluster(), FREE, 200)
    assert tightest(bounds_of(scenario)) == ENDPOINT_REQUESTS
    assert rate(scenario) == pytest.approx(requests_per_s / turns, rel=0.05)


@few
@given(floats(10, 1000), floats(1_000, 100_000))
def test_a_token_limit_is_divided_by_what_a_call_writes(tokens, tokens_per_s):
    workload = Workload(Fixed(0.0001), tokens=Fixed(tokens))
    scenario = Scenario(workload, Endpoint(tokens_per_s=tokens_per_s), Cluster(), FREE, 400)
    assert tightest(bounds_of(scenario)) == ENDPOINT_TOKENS
    assert rate(scenario) == pytest.approx(tokens_per_s / tokens, rel=0.05)


@few
@given(integers(1, 8), integers(1, 5))
def test_a_fast_endpoint_leaves_the_workers_cpu_as_the_bound(workers, turns):
    scenario = Scenario(Workload(Fixed(0.0), Fixed(turns)), Endpoint(), Cluster(1, 64, workers), REAL, 64 * workers)
    each_s = 600e-6 + (turns - 1) * 500e-6
    assert tightest(bounds_of(scenario)) == WORKER_CPU
    assert rate(scenario) == pytest.approx(workers / each_s, rel=0.05)


@few
@given(floats(0.02, 1), integers(2, 16))
def test_an_expensive_verifier_is_bound_by_all_cores(verify_cpu_s, cores):
    workload = Workload(Fixed(0.01), verify_cpu_s=verify_cpu_s)
    scenario = Scenario(workload, Endpoint(), Cluster(1, cores, 1), REAL, 200)
    assert tightest(bounds_of(scenario)) == VERIFIER_CPU
    assert rate(scenario) == pytest.approx(cores / (verify_cpu_s + 600e-6), rel=0.08)


def test_many_workers_are_bound_by_their_coordinator():
    cluster = Cluster(nodes=1000, cores=8, workers=8)
    scenario = Scenario(Workload(Fixed(2.0)), Endpoint(), cluster, REAL, 1_000_000)
    assert tightest(bounds_of(scenario)) == COORDINATOR_CPU
    assert rate(scenario) == pytest.approx(1 / 50e-6, rel=0.05)


@few
@given(
    in_flight=integers(1, 2000),
    median_s=floats(0.01, 10),
    sigma=floats(0, 1),
    turns=floats(1, 6),
    verify_cpu_s=floats(0, 0.2),
    workers=integers(1, 4),
    limit=integers(1, 500),
)
def test_no_run_is_faster_than_its_tightest_bound_nor_slower_than_if_all_queued_behind_each_other(
    in_flight, median_s, sigma, turns, verify_cpu_s, workers, limit
):
    workload = Workload(LogNormal(median_s, sigma), Fixed(turns), verify_cpu_s=verify_cpu_s)
    scenario = Scenario(workload, Endpoint(in_flight=limit), Cluster(2, 4, workers), REAL, in_flight)
    allowed = bounds_of(scenario)
    simulated = simulate(scenario, most_events=20_000).rollouts_per_s
    slowest = 1 / sum(1 / bound for bound in allowed.values())
    # Few long-tailed calls scatter around their mean.
    assert 0.75 * slowest <= simulated <= 1.25 * allowed[tightest(allowed)]


def test_exponential_calls_give_the_same_mean_as_fixed_ones():
    fixed, exponential = (
        rate(Scenario(Workload(latency), Endpoint(), Cluster(), FREE, 200)) for latency in (Fixed(1), Exponential(1))
    )
    assert exponential == pytest.approx(fixed, rel=0.1)


def test_a_run_with_an_end_takes_its_start_its_rollouts_and_its_stragglers():
    workload = Workload(Fixed(2.0), rollouts=100)
    scenario = Scenario(workload, Endpoint(), Cluster(), FREE, 50)
    assert simulate(scenario).duration_s == pytest.approx(4.0)
    slow_start = Scenario(workload, Endpoint(), Cluster(), Constants("x", 0, 0, 0, 1, 1, 3.0), 50)
    assert simulate(slow_start).duration_s == pytest.approx(7.0)


def test_a_long_run_goes_on_at_the_steady_rate():
    workload = Workload(Fixed(2.0), rollouts=1_000_000)
    scenario = Scenario(workload, Endpoint(), Cluster(), FREE, 1000)
    assert simulate(scenario).duration_s == pytest.approx(2000, rel=0.01)


def test_a_million_rollouts_in_flight_take_a_bounded_number_of_events():
    workload = Workload(LogNormal(2, 0.5), Fixed(20), rollouts=10_000_000)
    cluster = Cluster(nodes=1000, cores=64, workers=64)
    begin = time.process_time()
    simulated = simulate(Scenario(workload, Endpoint(), cluster, REAL, 1_000_000))
    assert simulated.stands_for > 100
    assert time.process_time() - begin < 30  # seconds on any machine; one event a call would take hours


def test_rollouts_take_longer_than_they_would_alone_when_they_queue():
    alone = simulate(Scenario(Workload(Fixed(1.0)), Endpoint(in_flight=10), Cluster(), FREE, 10))
    queued = simulate(Scenario(Workload(Fixed(1.0)), Endpoint(in_flight=10), Cluster(), FREE, 40))
    assert alone.p50_s == pytest.approx(1.0)
    assert queued.p50_s == pytest.approx(4.0, rel=0.1)
    assert tightest(bounds_of(Scenario(Workload(Fixed(1.0)), Endpoint(), Cluster(), FREE, 10))) == IN_FLIGHT
