# SPDX-License-Identifier: Apache-2.0
"""What a plan comes to: how fast, what holds it back, what it takes, and how far more nodes help."""

import math
from dataclasses import dataclass, replace

from nemo_gym._bench.plan import bounds
from nemo_gym._bench.plan.bounds import bounds_of, tightest
from nemo_gym._bench.plan.distributions import PlanError
from nemo_gym._bench.plan.scenario import (
    MOST_IN_FLIGHT_A_WORKER,
    Cluster,
    Constants,
    Endpoint,
    Scenario,
    Workload,
    most_in_memory,
)
from nemo_gym._bench.plan.simulate import Simulated, simulate

MOST_NODES = 1000
MOST_IN_FLIGHT = 1_000_000
_NODE_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_EVENTS_A_STEP = 15_000
_ROOM = 1.5
"""How many more rollouts are put in flight than the tightest resource could use, if the user names no number."""
_AS_GOOD = 0.95
"""The share of the best rate from which more nodes are not worth their while."""
_HINTS = {
    bounds.IN_FLIGHT: "keep more rollouts in flight (`--concurrency`): neither endpoint nor CPU is at its limit",
    bounds.ENDPOINT_IN_FLIGHT: "let the endpoint take more requests at once: add replicas, or raise its batch size; "
    "more nodes or workers here change nothing",
    bounds.ENDPOINT_REQUESTS: "ask for a higher request rate at the endpoint; more nodes or workers change nothing",
    bounds.ENDPOINT_TOKENS: "add replicas of the model or let it write less (`--max-output-tokens`); more nodes or "
    "workers here change nothing",
    bounds.WORKER_CPU: "add `--workers` up to the number of cores, then nodes",
    bounds.COORDINATOR_CPU: "split the run, with a coordinator for each part: `gym eval run --shard K/N`",
    bounds.VERIFIER_CPU: "add cores or nodes, or make the verifier cheaper: it takes more CPU than the rollouts",
    bounds.MEMORY: "add memory or nodes: the endpoint could serve more rollouts than fit in flight",
}


@dataclass(frozen=True)
class Forecast:
    """What one scenario comes to."""

    scenario: Scenario
    bounds: dict[str, float]
    binding: str
    simulated: Simulated

    @property
    def cores_needed(self) -> float:
        """Cores that are busy at this rate."""
        each_s = self.scenario.worker_cpu_s + self.scenario.coordinator_cpu_s + self.scenario.workload.verify_cpu_s
        return self.simulated.rollouts_per_s * each_s

    @property
    def hint(self) -> str:
        return _HINTS[self.binding]


def forecast(
    workload: Workload,
    endpoint: Endpoint,
    cluster: Cluster,
    constants: Constants,
    in_flight: int | None = None,
    *,
    most_events: int = 120_000,
) -> Forecast:
    """Return what a run comes to; without `in_flight`, with as many rollouts in flight as can be of use."""
    _require_sense(cluster, in_flight)
    fits = most_in_memory(constants, cluster)
    wanted = _choose_in_flight(workload, endpoint, cluster, constants) if in_flight is None else in_flight
    held = wanted if fits is None else min(wanted, fits)
    if workload.rollouts is not None:
        held = min(held, workload.rollouts)
    scenario = Scenario(workload, endpoint, cluster, constants, held)
    allowed = bounds_of(scenario)
    binding = tightest(allowed)
    if binding == bounds.IN_FLIGHT and fits is not None and held == fits < wanted:
        allowed[bounds.MEMORY] = allowed.pop(bounds.IN_FLIGHT)
        binding = bounds.MEMORY
    simulated = simulate(scenario, most_events=most_events)
    # No run is faster than its tightest bound: what goes beyond it is the noise of a finite simulation.
    rate = min(simulated.rollouts_per_s, allowed[binding])
    return Forecast(scenario, allowed, binding, replace(simulated, rollouts_per_s=rate))


def _choose_in_flight(workload: Workload, endpoint: Endpoint, cluster: Cluster, constants: Constants) -> int:
    """Return enough rollouts in flight to use the tightest resource (Little), and some more for the queues."""
    most = min(MOST_IN_FLIGHT, MOST_IN_FLIGHT_A_WORKER * cluster.all_workers)
    scenario = Scenario(workload, endpoint, cluster, constants, most)
    others = {name: rate for name, rate in bounds_of(scenario).items() if name != bounds.IN_FLIGHT}
    return max(1, min(most, math.ceil(_ROOM * min(others.values()) * scenario.rollout_s)))


def forecast_by_nodes(
    workload: Workload, endpoint: Endpoint, cluster: Cluster, constants: Constants, in_flight: int | None
) -> list[Forecast]:
    """Return forecasts for a growing number of such nodes, the planned number among them."""
    endless = replace(workload, rollouts=None)
    curve = list[Forecast]()
    for nodes in sorted({*_NODE_STEPS, cluster.nodes}):
        step = replace(cluster, nodes=nodes)
        # Fewer nodes than planned hold what they can.
        held = None if in_flight is None else min(in_flight, MOST_IN_FLIGHT_A_WORKER * step.all_workers)
        curve.append(forecast(endless, endpoint, step, constants, held, most_events=_EVENTS_A_STEP))
    return curve


def enough_nodes(curve: list[Forecast]) -> Forecast:
    """Return the first step of a curve that is nearly as fast as its best one."""
    best = max(one.simulated.rollouts_per_s for one in curve)
    return next(one for one in curve if one.simulated.rollouts_per_s >= _AS_GOOD * best)


def _require_sense(cluster: Cluster, in_flight: int | None) -> None:
    if not 1 <= cluster.nodes <= MOST_NODES:
        raise PlanError(
            f"--nodes {cluster.nodes}: a plan is for 1 to {MOST_NODES:,} nodes.\n"
            "known: beyond that one coordinator is not enough\nhint: plan one shard of the run (`--shard K/N`)"
        )
    most = MOST_IN_FLIGHT_A_WORKER * cluster.all_workers
    if in_flight is not None and in_flight > most:
        raise PlanError(
            f"--concurrency {in_flight:,}: {cluster.all_workers} workers hold at most {most:,} rollouts.\n"
            f"known: one process holds up to {MOST_IN_FLIGHT_A_WORKER:,}, which `gym bench scale` checks\n"
            f"hint: plan with {math.ceil(in_flight / MOST_IN_FLIGHT_A_WORKER)} workers or more, or with less in flight"
        )


def as_object(one: Forecast) -> dict[str, object]:
    """Return a forecast as JSON has it."""
    cluster = one.scenario.cluster
    simulated = one.simulated
    return {
        "nodes": cluster.nodes,
        "workers": cluster.all_workers,
        "cores": cluster.all_cores,
        "in_flight": one.scenario.in_flight,
        "rollouts_per_s": simulated.rollouts_per_s,
        "bound_rollouts_per_s": one.bounds[one.binding],
        "binds": one.binding,
        "bounds": one.bounds,
        "hint": one.hint,
        "p50_s": simulated.p50_s,
        "p99_s": simulated.p99_s,
        "duration_s": simulated.duration_s,
        "cores_needed": one.cores_needed,
        "memory_gb": one.scenario.memory_gb,
        "simulated_rollout_stands_for": simulated.stands_for,
    }
