# SPDX-License-Identifier: Apache-2.0
"""What each resource allows by itself, in rollouts a second: no run is faster than the smallest of these.

Operational laws, which hold whatever the distributions: a station with `m` servers that a rollout keeps busy for `s`
seconds lets at most `m/s` rollouts a second through, and `n` rollouts that each take at least `r` seconds end at most
`n/r` times a second (Little).
"""

from nemo_gym._bench.plan.scenario import Scenario

IN_FLIGHT = "rollouts in flight"
ENDPOINT_IN_FLIGHT = "endpoint: requests in flight"
ENDPOINT_REQUESTS = "endpoint: requests a second"
ENDPOINT_TOKENS = "endpoint: tokens a second"
WORKER_CPU = "worker CPU"
COORDINATOR_CPU = "coordinator CPU"
VERIFIER_CPU = "verifier CPU"
MEMORY = "memory"


def bounds_of(scenario: Scenario) -> dict[str, float]:
    """Return the most rollouts a second that each resource allows, for those that set a limit."""
    workload = scenario.workload
    endpoint = scenario.endpoint
    cluster = scenario.cluster
    turns = workload.mean_turns
    calls_s = workload.mean_turns * workload.latency.mean
    allowed: dict[str, float] = {}

    def add(name: str, amount: float | None, each: float) -> None:
        if amount is not None and each > 0:
            allowed[name] = min(amount / each, allowed.get(name, float("inf")))

    add(IN_FLIGHT, scenario.in_flight, scenario.rollout_s)
    add(ENDPOINT_IN_FLIGHT, endpoint.in_flight, calls_s)
    add(ENDPOINT_REQUESTS, endpoint.requests_per_s, turns)
    add(ENDPOINT_TOKENS, endpoint.tokens_per_s, turns * workload.tokens.mean)
    add(WORKER_CPU, min(cluster.all_workers, cluster.all_cores), scenario.worker_cpu_s)
    add(COORDINATOR_CPU, 1, scenario.coordinator_cpu_s)
    add(VERIFIER_CPU, cluster.all_cores, workload.verify_cpu_s)
    # All that computes shares the cores; who needs most of them is to blame.
    all_cpu_s = scenario.worker_cpu_s + workload.verify_cpu_s + scenario.coordinator_cpu_s
    blamed = VERIFIER_CPU if workload.verify_cpu_s > scenario.worker_cpu_s else WORKER_CPU
    add(blamed, cluster.all_cores, all_cpu_s)
    return allowed


def tightest(bounds: dict[str, float]) -> str:
    """Return the resource that allows least."""
    return min(bounds, key=bounds.__getitem__)
