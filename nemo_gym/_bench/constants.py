# SPDX-License-Identifier: Apache-2.0
"""What `gym bench plan` reckons with: the CPU and the memory of a rollout of `gym eval run`, and its start.

CPU is what many rollouts take beyond what a few take, so that the start is not part of it: once with one model call a
rollout, once with several tool calls. Memory is that of the command with few and with many rollouts in flight. What the
coordinator costs is measured where there is one, with `--workers`. The start is told in CPU, since a start does little
but compute and the wall time of a busy machine says nothing of others.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import uvloop

from nemo_gym._bench import bare_post
from nemo_gym._bench.eval_run import Command, prepared
from nemo_gym._bench.fake_replies import Settings
from nemo_gym._bench.measure import ThreadTimes, Used, run_child
from nemo_gym._bench.report import Row
from nemo_gym.cli.command_table import GROUPS

SINGLE_TURN = "single-turn rollout of `gym eval run`"
TOOL_TURN = "every further turn of a rollout of `gym eval run`"
COORDINATOR = "a rollout on the coordinator of `gym eval run --workers`"
PROCESS = "`gym eval run` with few rollouts in flight"
IN_FLIGHT = "every further rollout in flight"
START = "`gym eval run` with one rollout"
CPU_UNIT = "µs of CPU"
MEMORY_UNIT = "MB resident"
ROLLOUT_MEMORY_UNIT = "KB resident"
START_UNIT = "s of CPU"

_TOOL_ROUNDS = 4
_FEW = 300
_MANY = 1_800
_MANY_COORDINATED = 6_300
"""More, since a coordinator takes so little for each that its start would drown it."""
_CONCURRENCY = 32
_ROUNDS = 3
_IN_FLIGHT = 2_000
_IN_FLIGHT_LATENCY_MS = 5_000


def run() -> list[Row]:
    """All of them."""
    found = measure_cpu(_ROUNDS)
    return [
        _microseconds(SINGLE_TURN, [one.single_turn_s for one in found]),
        Row.of_samples(SINGLE_TURN, [one.single_turn_s / one.post_s for one in found], "bare POSTs of CPU"),
        _microseconds(TOOL_TURN, [one.further_turn_s for one in found]),
        Row.of_samples(TOOL_TURN, [one.further_turn_s / one.post_s for one in found], "bare POSTs of CPU"),
        *_measure_coordinator(),
        *_measure_memory(),
        _measure_start(),
    ]


@dataclass(frozen=True)
class RolloutCpu:
    """CPU seconds of a rollout, and of a bare POST right before and after."""

    single_turn_s: float
    further_turn_s: float
    post_s: float


def measure_cpu(rounds: int) -> list[RolloutCpu]:
    """Return what a rollout with one model call costs, and every further turn, round by round."""
    found = list[RolloutCpu]()
    one = Settings(tool_rounds=0)
    several = Settings(tool_rounds=_TOOL_ROUNDS)
    with prepared(one) as (one_call, base_url), prepared(several) as (many_calls, _):
        for command in (one_call, many_calls):
            _run(command, 1)  # writes bytecode
        for _ in range(rounds):
            before_s = measure_post_s(base_url)
            single_s = _cpu_of_rollout_s(one_call)
            further_s = (_cpu_of_rollout_s(many_calls) - single_s) / _TOOL_ROUNDS
            found.append(RolloutCpu(single_s, further_s, (before_s + measure_post_s(base_url)) / 2))
    return found


def measure_post_s(base_url: str) -> float:
    """Return the CPU seconds of a bare POST to the fake endpoint at this moment."""
    return uvloop.run(_post_s(base_url))


async def _post_s(base_url: str) -> float:
    async with aiohttp.ClientSession() as session:
        await bare_post.cost(session, base_url)
        return await bare_post.cost(session, base_url)


def _cpu_of_rollout_s(command: Command) -> float:
    return (_run(command, _MANY).cpu_s - _run(command, _FEW).cpu_s) / (_MANY - _FEW)


def _run(command: Command, rollouts: int, concurrency: int = _CONCURRENCY) -> Used:
    tasks = command.write_tasks(rollouts)
    argv = command.argv("--input", tasks, "--concurrency", str(concurrency), "--quiet", "--disable-aggregation")
    return run_child(argv, command.env)


def _microseconds(name: str, samples: Sequence[float]) -> Row:
    return Row.of_samples(name, [1e6 * sample for sample in samples], CPU_UNIT)


def _measure_memory() -> list[Row]:
    with prepared(Settings(tool_rounds=0, latency_ms=_IN_FLIGHT_LATENCY_MS)) as (command, _):
        few = _run(command, _CONCURRENCY)
        many = _run(command, _IN_FLIGHT, _IN_FLIGHT)
    each_kb = 1024 * (many.peak_mb - few.peak_mb) / (_IN_FLIGHT - _CONCURRENCY)
    return [Row(PROCESS, few.peak_mb, MEMORY_UNIT), Row(IN_FLIGHT, each_kb, ROLLOUT_MEMORY_UNIT)]


def _measure_start() -> Row:
    with prepared(Settings(tool_rounds=0)) as (command, _):
        _run(command, 1)  # writes bytecode
        return Row.of_samples(START, [_run(command, 1).cpu_s for _ in range(_ROUNDS)], START_UNIT)


def _measure_coordinator() -> list[Row]:
    """Return the CPU of the command's own process for a rollout that one of its workers plays."""
    if "--workers" not in {flag.name for flag in GROUPS["eval"]["run"].flags}:
        return []
    samples = list[float]()
    with prepared(Settings(tool_rounds=0)) as (command, _):
        _coordinator_cpu_s(command, 1)  # writes bytecode
        for _ in range(_ROUNDS):
            few, many = (_coordinator_cpu_s(command, rollouts) for rollouts in (_FEW, _MANY_COORDINATED))
            samples.append((many - few) / (_MANY_COORDINATED - _FEW))
    return [_microseconds(COORDINATOR, samples)]


def _coordinator_cpu_s(command: Command, rollouts: int) -> float:
    """Return the CPU of the command's process without that of its workers."""
    arguments = ("--input", command.write_tasks(rollouts), "--concurrency", str(_CONCURRENCY), "--quiet")
    process = command.start(*arguments, "--workers", "2", "--disable-aggregation")
    times = ThreadTimes()
    while process.poll() is None:
        times.look(process.pid)
        time.sleep(0.02)
    if process.returncode:
        raise RuntimeError(f"`gym eval run --workers 2` ended with code {process.returncode}")
    return times.ran_s
