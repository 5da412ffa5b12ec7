# SPDX-License-Identifier: Apache-2.0
import pytest

from nemo_gym._bench.plan.bounds import COORDINATOR_CPU, ENDPOINT_IN_FLIGHT, IN_FLIGHT, MEMORY, WORKER_CPU
from nemo_gym._bench.plan.distributions import Fixed, PlanError
from nemo_gym._bench.plan.forecast import as_object, enough_nodes, forecast, forecast_by_nodes
from nemo_gym._bench.plan.scenario import Cluster, Constants, Endpoint, Workload

KNOWN = Constants("a laptop", 1e-3, 1e-3, 50e-6, process_memory_mb=100, rollout_memory_mb=0.1, start_s=1)
CALLS = Workload(Fixed(2.0))


def test_without_a_number_as_many_rollouts_are_in_flight_as_the_tightest_resource_can_use():
    planned = forecast(CALLS, Endpoint(in_flight=100), Cluster(cores=2), KNOWN)
    assert planned.binding == ENDPOINT_IN_FLIGHT
    assert 100 < planned.scenario.in_flight <= 160
    assert planned.simulated.rollouts_per_s == pytest.approx(50, rel=0.05)


def test_too_few_rollouts_in_flight_are_what_binds():
    planned = forecast(CALLS, Endpoint(), Cluster(cores=2), KNOWN, in_flight=10)
    assert planned.binding == IN_FLIGHT
    assert "--concurrency" in planned.hint


def test_rollouts_that_do_not_fit_into_memory_are_not_put_in_flight():
    planned = forecast(CALLS, Endpoint(), Cluster(cores=2, memory_gb=0.2), KNOWN, in_flight=2000)
    assert planned.binding == MEMORY
    assert planned.scenario.in_flight == 1048
    assert planned.scenario.memory_gb <= 0.2


def test_cores_and_memory_are_those_of_what_is_in_flight():
    planned = forecast(CALLS, Endpoint(), Cluster(cores=2), KNOWN, in_flight=200)
    assert planned.cores_needed == pytest.approx(100 * 1e-3, rel=0.05)
    assert planned.scenario.memory_gb == pytest.approx((100 + 20) / 1024)


def test_more_nodes_stop_helping_where_the_endpoint_binds():
    curve = forecast_by_nodes(CALLS, Endpoint(in_flight=8000), Cluster(cores=2), KNOWN, None)
    assert [one.scenario.cluster.nodes for one in curve] == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert curve[0].binding == WORKER_CPU
    assert curve[-1].binding == ENDPOINT_IN_FLIGHT
    assert enough_nodes(curve).scenario.cluster.nodes == 5


def test_more_nodes_stop_helping_where_the_coordinator_binds():
    curve = forecast_by_nodes(CALLS, Endpoint(), Cluster(cores=4, workers=4), KNOWN, None)
    assert curve[-1].binding == COORDINATOR_CPU
    assert "--shard" in curve[-1].hint
    assert enough_nodes(curve).simulated.rollouts_per_s == pytest.approx(1 / 50e-6, rel=0.1)


def test_fewer_nodes_than_planned_hold_what_they_can():
    curve = forecast_by_nodes(CALLS, Endpoint(), Cluster(nodes=200), KNOWN, 100_000)
    assert [one.scenario.in_flight for one in curve][:4] == [16_000, 32_000, 80_000, 100_000]


@pytest.mark.parametrize(
    ("cluster", "in_flight", "told"),
    [
        (Cluster(nodes=1001), None, "a plan is for 1 to 1,000 nodes"),
        (Cluster(), 20_000, "1 workers hold at most 16,000 rollouts"),
        (Cluster(memory_gb=0.05), None, "1 processes do not fit into 0.05 GB"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_in_three_parts(cluster, in_flight, told):
    with pytest.raises(PlanError) as refused:
        forecast(CALLS, Endpoint(), cluster, KNOWN, in_flight)
    assert told in str(refused.value)
    assert str(refused.value).splitlines()[-1].startswith("hint: ")
    assert len(str(refused.value).splitlines()) == 3


def test_a_forecast_as_json_says_what_binds_and_what_to_do():
    told = as_object(forecast(CALLS, Endpoint(in_flight=100), Cluster(cores=2), KNOWN))
    assert told["binds"] == ENDPOINT_IN_FLIGHT
    assert told.keys() >= {"rollouts_per_s", "bounds", "cores_needed", "memory_gb", "hint", "p99_s"}
