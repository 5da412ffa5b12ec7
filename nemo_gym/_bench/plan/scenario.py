# SPDX-License-Identifier: Apache-2.0
"""What a forecast is made of: the rollouts, the endpoint, the machines, and what this package was measured to cost."""

import math
from dataclasses import dataclass, field

from nemo_gym._bench.plan.distributions import Distribution, Fixed, PlanError

MOST_IN_FLIGHT_A_WORKER = 16_000


@dataclass(frozen=True)
class Constants:
    """What this package costs, as the part `constants` of `gym bench` measured it."""

    machine: str
    """Where, so that a reader knows whose numbers these are."""
    single_turn_cpu_s: float
    """CPU of a rollout with one model call, on the worker."""
    tool_turn_cpu_s: float
    """CPU of every further turn: a tool call, and a model call with what it gave."""
    coordinator_cpu_s: float
    """CPU of a rollout on the coordinator, where there are several workers."""
    process_memory_mb: float
    """A worker before its first rollout."""
    rollout_memory_mb: float
    """What a rollout in flight adds."""
    start_s: float
    """CPU of the command but for its rollouts; nearly all of it before the first one."""


@dataclass(frozen=True)
class Workload:
    """The rollouts."""

    latency: Distribution
    """Seconds of a model call at an endpoint that is not at its limits."""
    turns: Distribution = field(default_factory=lambda: Fixed(1))
    """Model calls of a rollout."""
    tokens: Distribution = field(default_factory=lambda: Fixed(0))
    """Tokens that a model call writes."""
    tool_cpu_s: float = 0.0
    """CPU of a tool call beyond what every call costs, on the worker."""
    verify_cpu_s: float = 0.0
    """CPU of a verification beyond what every one costs, in a process of its own on the node."""
    rollouts: int | None = None
    """How many there are in all; None for a run without an end."""

    @property
    def mean_turns(self) -> float:
        return max(1.0, self.turns.mean)


@dataclass(frozen=True)
class Endpoint:
    """What the endpoint allows; None where it has no limit."""

    in_flight: float | None = None
    requests_per_s: float | None = None
    tokens_per_s: float | None = None


@dataclass(frozen=True)
class Cluster:
    """The machines."""

    nodes: int = 1
    cores: float = 1
    """Of each node; a fraction if others use it too."""
    workers: int = 1
    """Processes of each node that play rollouts."""
    memory_gb: float | None = None
    """Of each node; None if it is not known."""

    @property
    def all_workers(self) -> int:
        return self.nodes * self.workers

    @property
    def all_cores(self) -> float:
        return self.nodes * self.cores

    @property
    def has_coordinator(self) -> bool:
        """Whether a process of its own hands out rollouts and writes them down."""
        return self.all_workers > 1


@dataclass(frozen=True)
class Scenario:
    """Everything that a forecast needs."""

    workload: Workload
    endpoint: Endpoint
    cluster: Cluster
    constants: Constants
    in_flight: int
    """Rollouts in flight, over all workers."""

    @property
    def worker_cpu_s(self) -> float:
        """CPU of a mean rollout on its worker."""
        turns = self.workload.mean_turns
        known = self.constants
        further = (turns - 1) * (known.tool_turn_cpu_s + self.workload.tool_cpu_s)
        return known.single_turn_cpu_s + further

    @property
    def coordinator_cpu_s(self) -> float:
        """CPU of a rollout on the coordinator; nothing if the only worker is its own."""
        return self.constants.coordinator_cpu_s if self.cluster.has_coordinator else 0.0

    @property
    def rollout_s(self) -> float:
        """Seconds of a mean rollout that waits for nobody."""
        calls_s = self.workload.mean_turns * self.workload.latency.mean
        return calls_s + self.worker_cpu_s + self.workload.verify_cpu_s + self.coordinator_cpu_s

    @property
    def memory_gb(self) -> float:
        """Memory of all nodes with every rollout in flight."""
        processes = self.cluster.all_workers + self.cluster.has_coordinator
        used_mb = processes * self.constants.process_memory_mb + self.in_flight * self.constants.rollout_memory_mb
        return used_mb / 1024


def most_in_memory(constants: Constants, cluster: Cluster) -> int | None:
    """Return how many rollouts in flight fit into the memory of all nodes; None if it is not known."""
    if cluster.memory_gb is None:
        return None
    processes = cluster.all_workers + cluster.has_coordinator
    free_mb = cluster.nodes * cluster.memory_gb * 1024 - processes * constants.process_memory_mb
    if free_mb < constants.rollout_memory_mb:
        raise PlanError(
            f"{processes} processes do not fit into {cluster.nodes * cluster.memory_gb:g} GB.\n"
            f"each takes {constants.process_memory_mb:.0f} MB before its first rollout\n"
            "hint: plan with fewer `--workers`, or with more `--memory`"
        )
    return math.floor(free_mb / constants.rollout_memory_mb)
