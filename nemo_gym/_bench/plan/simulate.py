# SPDX-License-Identifier: Apache-2.0
"""The queues of a run, event by event: rollouts go from the coordinator through workers and endpoint to the verifier.

A rollout of the simulation may stand for many (`stands_for`), with every station as much smaller: the work of a run is
then bounded whatever its size. A station that has less than one server left keeps one that is as much slower. What that
distorts is at most the time that one of the simulated rollouts takes at such a station, a small share of its whole.

CPU is shared: where more processes compute than there are cores, all of them slow down.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from nemo_gym._bench.measure import percentile
from nemo_gym._bench.plan.scenario import Scenario

_COORDINATOR, _WORKER, _RATE, _ENDPOINT, _VERIFIER = range(5)
_COMPUTING = (_COORDINATOR, _WORKER, _VERIFIER)
_FEWEST = 40
"""Simulated rollouts in flight below which a figure would be noise, if there are as many."""
_FEWEST_ROUNDS = 5
_MOST_ROUNDS = 60
"""How often each place in flight is used, after one round that is not counted."""


@dataclass(frozen=True)
class Simulated:
    """What a simulated run came to."""

    rollouts_per_s: float
    """In the steady state."""
    p50_s: float
    p99_s: float
    """How long rollouts take, queues and all."""
    stands_for: float
    """How many rollouts each simulated one stands for."""
    duration_s: float | None = None
    """Of the whole run, with its start and its last stragglers; None if it has no end."""


class _Station:
    """Some servers and a queue."""

    def __init__(self, servers: float | None, stands_for: float) -> None:
        """`servers` None: as many as come."""
        self.limit = None if servers is None else max(1, round(servers / stands_for))
        self.busy = 0
        self.queue: deque[_Rollout] = deque()
        # Fewer or slower servers do the same work.
        self.slowdown = 1.0 if servers is None or self.limit is None else self.limit * stands_for / servers
        self.cores_of_a_server = 0.0 if servers is None or self.limit is None else servers / self.limit


class _Rollout:
    def __init__(self, visits: Iterator[tuple[int, float]], began_s: float) -> None:
        self.visits = visits
        self.began_s = began_s
        self.at = -1
        self.takes_s = 0.0


class _Run:
    """One simulated run: `_FEWEST` or more rollouts in flight, each place taken again as its rollout ends."""

    def __init__(self, scenario: Scenario, stands_for: float, seed: int) -> None:
        self._scenario = scenario
        self._dice = random.Random(seed)
        self._stands_for = stands_for
        cluster = scenario.cluster
        endpoint = scenario.endpoint
        self._cores = cluster.all_cores
        has_rate = endpoint.requests_per_s is not None or endpoint.tokens_per_s is not None
        self._has_rate = has_rate
        self._stations = [
            _Station(1, stands_for),
            _Station(cluster.all_workers, stands_for),
            _Station(1 if has_rate else None, stands_for),
            _Station(endpoint.in_flight, stands_for),
            _Station(max(1.0, cluster.all_cores), stands_for),
        ]
        self._events: list[tuple[float, int, _Rollout]] = []
        self._number = 0
        self.now_s = 0.0
        self.ended_s: list[float] = []
        self.took_s: list[float] = []

    def play(self, in_flight: int, rollouts: int, *, spread_s: float) -> None:
        """Play so many rollouts; the first ones begin within `spread_s`."""
        left = rollouts - in_flight
        for number in range(in_flight):
            begin_s = spread_s * number / in_flight
            self._schedule(begin_s, _Rollout(self._visits(), begin_s))
        while self._events:
            self.now_s, _, rollout = heapq.heappop(self._events)
            if rollout.at >= 0:
                self._leave(rollout)
            visit = next(rollout.visits, None)
            if visit is not None:
                rollout.at, rollout.takes_s = visit
                self._arrive(rollout)
                continue
            self.ended_s.append(self.now_s)
            self.took_s.append(self.now_s - rollout.began_s)
            if left > 0:
                left -= 1
                self._schedule(self.now_s, _Rollout(self._visits(), self.now_s))

    def _visits(self) -> Iterator[tuple[int, float]]:
        """Yield the stations of one rollout and how long each takes."""
        scenario = self._scenario
        dice = self._dice
        workload = scenario.workload
        known = scenario.constants
        drawn = workload.turns.draw(dice)
        turns = max(1, int(drawn) + (dice.random() < drawn % 1))
        coordinator_s = scenario.coordinator_cpu_s
        if coordinator_s:
            yield _COORDINATOR, coordinator_s / 2
        yield _WORKER, known.single_turn_cpu_s / 2
        for turn in range(turns):
            if turn:
                yield _WORKER, known.tool_turn_cpu_s + workload.tool_cpu_s
            if self._has_rate:
                yield _RATE, self._least_interval_s(dice)
            yield _ENDPOINT, workload.latency.draw(dice)
        yield _WORKER, known.single_turn_cpu_s / 2
        if workload.verify_cpu_s:
            yield _VERIFIER, workload.verify_cpu_s
        if coordinator_s:
            yield _COORDINATOR, coordinator_s / 2

    def _least_interval_s(self, dice: random.Random) -> float:
        """Return how long the endpoint's rates keep the next request waiting after this one."""
        endpoint = self._scenario.endpoint
        by_requests = 1 / endpoint.requests_per_s if endpoint.requests_per_s else 0.0
        by_tokens = self._scenario.workload.tokens.draw(dice) / endpoint.tokens_per_s if endpoint.tokens_per_s else 0.0
        return max(by_requests, by_tokens)

    def _arrive(self, rollout: _Rollout) -> None:
        station = self._stations[rollout.at]
        if station.limit is not None and station.busy >= station.limit:
            station.queue.append(rollout)
        else:
            self._serve(station, rollout)

    def _serve(self, station: _Station, rollout: _Rollout) -> None:
        station.busy += 1
        takes_s = rollout.takes_s * station.slowdown
        if rollout.at in _COMPUTING:
            wanted = sum(self._stations[at].busy * self._stations[at].cores_of_a_server for at in _COMPUTING)
            takes_s *= max(1.0, wanted / self._cores)
        self._schedule(self.now_s + takes_s, rollout)

    def _leave(self, rollout: _Rollout) -> None:
        station = self._stations[rollout.at]
        station.busy -= 1
        if station.queue:
            self._serve(station, station.queue.popleft())

    def _schedule(self, at_s: float, rollout: _Rollout) -> None:
        self._number += 1
        heapq.heappush(self._events, (at_s, self._number, rollout))


def simulate(scenario: Scenario, *, most_events: int = 120_000, seed: int = 0) -> Simulated:
    """Simulate a run in bounded time and return its steady state, and its duration if it has an end."""
    events_each = 2 * scenario.workload.mean_turns + 4
    affordable = max(_FEWEST, int(most_events / events_each / (_FEWEST_ROUNDS + 1)))
    places = min(scenario.in_flight, affordable)
    rounds = min(_MOST_ROUNDS, max(_FEWEST_ROUNDS, int(most_events / events_each / places) - 1))
    stands_for = scenario.in_flight / places
    run = _Run(scenario, stands_for, seed)
    played = places * (rounds + 1)
    run.play(places, played, spread_s=scenario.rollout_s)
    # The first round fills the queues, and in the last one they run dry.
    window = sorted(run.ended_s)[places : played - places + 1]
    elapsed_s = window[-1] - window[0]
    rate = stands_for * (len(window) - 1) / elapsed_s if elapsed_s else float("inf")
    counted = run.took_s[places:]
    duration_s = None
    if scenario.workload.rollouts is not None:
        duration_s = scenario.constants.start_s + _duration_s(scenario, scenario.workload.rollouts, rate, affordable)
    return Simulated(rate, percentile(counted, 0.5), percentile(counted, 0.99), stands_for, duration_s)


def _duration_s(scenario: Scenario, rollouts: int, rate: float, affordable: int) -> float:
    """Return the time from the first rollout's beginning to the last one's end.

    Beginning and end are simulated; what lies between goes on at the steady rate.
    """
    in_flight = min(scenario.in_flight, rollouts)
    ends = min(rollouts, 3 * in_flight)
    stands_for = max(1.0, ends / (affordable * _FEWEST_ROUNDS))
    run = _Run(scenario, stands_for, seed=1)
    places = max(1, round(in_flight / stands_for))
    run.play(places, max(places, round(ends / stands_for)), spread_s=0.0)
    return max(run.ended_s) + (rollouts - ends) / rate
