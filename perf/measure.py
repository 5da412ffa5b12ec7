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

Samples = dict[str, list[float]]
"""The samples of each case, in seconds of CPU; those of one round have the same index."""


def cpu_of_child(argv: Sequence[str], env: Mapping[str, str], *, quiet: bool = False) -> float:
    """The CPU seconds, user and system, that a child process takes from start to end; `quiet` drops what it prints."""
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)] if quiet else []
    pid = os.posix_spawn(argv[0], list(argv), dict(env), file_actions=nowhere)
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        raise RuntimeError(f"{' '.join(argv)!r} ended with status {status}")
    return used.ru_utime + used.ru_stime


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
    return statistics.median(a / b for a, b in zip(samples[case], samples[reference], strict=True))


def difference_of(samples: Samples, case: str, reference: str) -> float:
    """How much more than the reference a case takes, in seconds: the middle one of the rounds' differences."""
    return statistics.median(a - b for a, b in zip(samples[case], samples[reference], strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
