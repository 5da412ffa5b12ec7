# SPDX-License-Identifier: Apache-2.0
"""What two workers of `gym eval run --workers 2` gain over one process, in tool rollouts.

The fake endpoint computes on the same machine. Where that has two cores, its CPU is taken from the workers, so that two
figures are given: wall time as it is, and what the CPU allows, which is the gain on two cores with the endpoint
elsewhere: twice the CPU of one process a rollout, over that of the coordinator and its workers. What few rollouts take
is taken off, so that starting, which is the same for all lengths of a run, is no part of it.
"""

import os
import subprocess
import time
from dataclasses import dataclass
from statistics import median

import psutil

from nemo_gym._bench.eval_run import Command, prepared, stats
from nemo_gym._bench.fake_replies import Settings
from nemo_gym._bench.report import Row

_FEW = 500
_MANY = 6_500
_CONCURRENCY = 64
_ROUNDS = 3
_SAMPLE_EVERY_S = 0.05
_GAIN = 1.7
_MOST_COORDINATOR_US = 100.0


@dataclass(frozen=True)
class _Cost:
    """What rollouts take, in seconds."""

    wall_s: float
    """From the first model request to the last line in the journal."""
    all_s: float
    """CPU of the command and of its workers."""
    coordinator_s: float
    """CPU of the command alone, from the first model request on: planning goes before, and the metrics come after."""
    endpoint_s: float

    def minus(self, few: "_Cost") -> "_Cost":
        """What one of the rollouts takes that `few` does not have."""
        count = _MANY - _FEW
        return _Cost(
            (self.wall_s - few.wall_s) / count,
            (self.all_s - few.all_s) / count,
            (self.coordinator_s - few.coordinator_s) / count,
            (self.endpoint_s - few.endpoint_s) / count,
        )


def run() -> list[Row]:
    """One process and two workers, in turns."""
    with prepared(Settings(tool_rounds=1)) as (command, base_url):
        _play(command, base_url, _FEW, 2)  # writes bytecode
        rounds = [tuple(_measure(command, base_url, workers) for workers in (1, 2)) for _ in range(_ROUNDS)]
    ones, twos = ([pair[index] for pair in rounds] for index in (0, 1))
    gain_by_wall = median(one.wall_s / two.wall_s for one, two in rounds)
    gain_by_cpu = median(2 * one.all_s / two.all_s for one, two in rounds)
    return [
        Row("one process", median(1 / one.wall_s for one in ones), "rollouts a second"),
        Row("one process", median(1e6 * one.all_s for one in ones), "µs of CPU a rollout"),
        Row("two workers", median(1 / two.wall_s for two in twos), "rollouts a second"),
        Row("two workers, with coordinator", median(1e6 * two.all_s for two in twos), "µs of CPU a rollout"),
        Row(
            "coordinator alone, while it plays",
            median(1e6 * two.coordinator_s for two in twos),
            "µs of CPU a rollout",
            _MOST_COORDINATOR_US,
        ),
        Row("endpoint", median(1e6 * two.endpoint_s for two in twos), "µs of CPU a rollout"),
        Row("two workers, wall", 1 / gain_by_wall, "of one process's time", 1 / _GAIN),
        Row("two workers, by CPU", 1 / gain_by_cpu, "of one process's time", 1 / _GAIN),
    ]


def _measure(command: Command, base_url: str, workers: int) -> _Cost:
    few = _play(command, base_url, _FEW, workers)
    return _play(command, base_url, _MANY, workers).minus(few)


def _play(command: Command, base_url: str, rollouts: int, workers: int) -> _Cost:
    tasks = command.write_tasks(rollouts)
    endpoint_s = stats(base_url, then_reset=True)["cpu_s"]
    words = ["--input", tasks, "--concurrency", str(_CONCURRENCY), "--quiet", "--workers", str(workers)]
    process = command.start(*words, stdout=subprocess.DEVNULL)
    watched = psutil.Process(process.pid)
    samples = list[tuple[float, float]]()
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        times = watched.cpu_times()
        samples.append((time.time(), times.user + times.system))
        time.sleep(_SAMPLE_EVERY_S)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"`gym eval run --workers {workers}` ended with code {process.returncode}")
    ended = command.output.stat().st_mtime
    counted = stats(base_url)
    began: float = counted["first_call_at"]
    playing = [cpu_s for at, cpu_s in samples if began - _SAMPLE_EVERY_S <= at <= ended + _SAMPLE_EVERY_S]
    coordinator_s = playing[-1] - playing[0]
    wall_s = ended - began
    return _Cost(wall_s, used.ru_utime + used.ru_stime, coordinator_s, counted["cpu_s"] - endpoint_s)
