# SPDX-License-Identifier: Apache-2.0
"""How things are measured here: CPU time, in short rounds that take turns, summed up by medians.

Whatever disturbs the machine then disturbs all cases alike, and a ratio of two of them stays put. Wall time is measured
only where waiting is the subject.
"""

import gc
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Samples = dict[str, list[float]]
"""The samples of each case, in seconds of CPU; those of one round have the same index."""


@dataclass(frozen=True)
class Used:
    """What a child process took, with those that it waited for."""

    cpu_s: float
    """User and system."""
    peak_mb: float
    """Of the largest of its processes; at least what this process holds, since the kernel counts from the fork."""


def run_child(argv: Sequence[str], env: Mapping[str, str], *, quiet: bool = True) -> Used:
    """Run a child process from start to end; `quiet` drops what it prints. RuntimeError if it fails."""
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)] if quiet else []
    pid = os.posix_spawn(argv[0], list(argv), dict(env), file_actions=nowhere)
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        raise RuntimeError(f"{' '.join(argv)!r} ended with status {status}")
    return Used(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def cpu_of_child(argv: Sequence[str], env: Mapping[str, str], *, quiet: bool = False) -> float:
    """Return the CPU seconds, user and system, that a child process takes from start to end."""
    return run_child(argv, env, quiet=quiet).cpu_s


class ThreadTimes:
    """How long threads of other processes ran, and were ready to run but did not, as the kernel counts it in ns.

    What has ended is known from the last look at it.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[int, int]] = {}
        self._before: dict[tuple[int, str], tuple[int, int]] = {}

    def begin(self) -> None:
        """Count from here on."""
        self._before = dict(self._seen)

    def look(self, *pids: int) -> None:
        """Note the times of all threads of these processes (`schedstat` in proc(5))."""
        for pid in pids:
            try:
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    ran, waited, _ = map(int, (thread / "schedstat").read_text().split())
                    self._seen[pid, thread.name] = ran, waited
            except (FileNotFoundError, ProcessLookupError):
                continue

    @property
    def ran_s(self) -> float:
        return self._total_s(0)

    @property
    def share(self) -> float:
        """Of the CPU that the threads were ready to use, what they got; 1 if there were none."""
        asked_s = self.ran_s + self._total_s(1)
        return self.ran_s / asked_s if asked_s else 1.0

    def _total_s(self, which: int) -> float:
        before = self._before
        return 1e-9 * sum(times[which] - before.get(thread, (0, 0))[which] for thread, times in self._seen.items())


def in_turns(cases: Mapping[str, Callable[[], float]], rounds: int) -> Samples:
    """Sample every case once a round; a first round, not counted, warms caches."""
    samples: Samples = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, sample in cases.items():
            value = sample()
            if number:
                samples[name].append(value)
    return samples


async def in_turns_async(cases: Mapping[str, Callable[[], Awaitable[float]]], rounds: int) -> Samples:
    """As `in_turns`, for cases that await."""
    samples: Samples = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, sample in cases.items():
            value = await sample()
            if number:
                samples[name].append(value)
    return samples


def cpu_per_call(call: Callable[[], object], calls: int) -> float:
    """The CPU seconds of this process per call."""
    gc.collect()
    begin = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - begin) / calls


async def cpu_per_call_async(call: Callable[[], Awaitable[object]], calls: int) -> float:
    """The CPU seconds of this process per call, one call at a time."""
    gc.collect()
    begin = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - begin) / calls


def median_of(samples: Samples, case: str) -> float:
    """The middle sample of a case."""
    return statistics.median(samples[case])


def ratio_of(samples: Samples, case: str, reference: str) -> float:
    """How many times the reference a case takes: the middle one of the rounds' ratios."""
    return statistics.median(ratios_of(samples, case, reference))


def ratios_of(samples: Samples, case: str, reference: str) -> list[float]:
    """Return how many times the reference a case takes, round by round."""
    return [a / b for a, b in zip(samples[case], samples[reference], strict=True)]


def differences_of(samples: Samples, case: str, reference: str) -> list[float]:
    """Return how much more than the reference a case takes, in seconds, round by round."""
    return [a - b for a, b in zip(samples[case], samples[reference], strict=True)]


def in_unit(samples: Samples, case: str, per_second: float) -> list[float]:
    """Return the samples of a case in another unit, of which a second has so many."""
    return [per_second * sample for sample in samples[case]]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
