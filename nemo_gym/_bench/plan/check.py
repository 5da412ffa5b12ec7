# SPDX-License-Identifier: Apache-2.0
"""Three real runs beside their forecasts: one that CPU holds back, one the endpoint's latency, one the verifier.

The constants are measured in the same minutes. What other processes take of the cores is counted by the kernel (the
time that threads of run and endpoint were ready and did not run) and given to the forecast. That helps, and yet a busy
machine is no place for this check: at a load of 15 on two cores, eight of twelve forecasts were off by over a fifth,
on the same cores without other work none of three.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import psutil

from nemo_gym._bench import constants, fake_endpoint
from nemo_gym._bench.eval_run import Command, stats
from nemo_gym._bench.fake_replies import Settings
from nemo_gym._bench.measure import ThreadTimes
from nemo_gym._bench.plan.distributions import Fixed
from nemo_gym._bench.plan.forecast import forecast
from nemo_gym._bench.plan.scenario import Cluster, Constants, Endpoint, Workload
from nemo_gym._bench.report import Row

BUSY_SHARE = 0.8
"""The share of the CPU below which a run says little of a forecast."""
ALLOWED = 1.2
"""How many times the real rate a forecast may be, or the real rate a forecast."""
_LOOK_EVERY_S = 0.1
_VERIFY_CPU_S = 0.02
_CONSTANT_ROUNDS = 3
_ENVIRONMENT = "heavy_verifier"
_SERVER = f'''\
# SPDX-License-Identifier: Apache-2.0
"""An environment whose verifier computes for {1000 * _VERIFY_CPU_S:g} ms."""

import time

from fastapi import FastAPI
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.cpu_pool import CpuPool


def compute(cpu_s: float) -> float:
    begin = time.process_time()
    while time.process_time() - begin < cpu_s:
        sum(range(2_000))
    return 1.0


class HeavyVerifier(SimpleResourcesServer):
    _pool: CpuPool = PrivateAttr()

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        self._pool = CpuPool(timeout_s=300)
        self._pool.close_with(app)
        return app

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=await self._pool.run(compute, {_VERIFY_CPU_S}))


if __name__ == "__main__":
    HeavyVerifier.run_webserver()
'''
_CONFIG = f"""\
{_ENVIRONMENT}:
  resources_servers:
    {_ENVIRONMENT}:
      entrypoint: app.py
      domain: other
{_ENVIRONMENT}_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {_ENVIRONMENT}}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""


@dataclass(frozen=True)
class RealRun:
    """A run that is made and forecast."""

    name: str
    workload: Workload
    settings: Settings
    concurrency: int
    rollouts: int
    environment: str = "example_single_tool_call"


RUNS = (
    RealRun("CPU holds it back", Workload(Fixed(0.0), Fixed(3)), Settings(tool_rounds=2), 32, 3_000),
    RealRun(
        "latency holds it back", Workload(Fixed(0.3), Fixed(1)), Settings(tool_rounds=0, latency_ms=300), 32, 1_500
    ),
    RealRun(
        "the verifier holds it back",
        Workload(Fixed(0.0), Fixed(1), verify_cpu_s=_VERIFY_CPU_S),
        Settings(tool_rounds=0),
        64,
        1_000,
        _ENVIRONMENT,
    ),
)


@dataclass(frozen=True)
class Checked:
    """A real run and its forecast, in rollouts a second."""

    name: str
    real: float
    planned: float
    share: float
    """Of the CPU that the worker was ready to use, what it got."""

    @property
    def factor(self) -> float:
        """How many times the real rate the forecast is."""
        return self.planned / self.real

    @property
    def is_close(self) -> bool:
        return 1 / ALLOWED <= self.factor <= ALLOWED


def check(runs: tuple[RealRun, ...] = RUNS) -> list[Checked]:
    """Measure the constants, make the runs and forecast each."""
    measured = constants.measure_cpu(_CONSTANT_ROUNDS)
    single_posts = median(one.single_turn_s / one.post_s for one in measured)
    further_posts = median(one.further_turn_s / one.post_s for one in measured)
    return [_check(one, single_posts, further_posts) for one in runs]


def rows_of(checked: list[Checked]) -> list[Row]:
    """Return what was found as rows of a report."""
    return [
        row
        for one in checked
        for row in (
            Row(f"{one.name}: real run", one.real, "rollouts/s"),
            Row(f"{one.name}: forecast", one.planned, "rollouts/s"),
            Row(f"{one.name}: how far off", max(one.factor, 1 / one.factor), "x", ALLOWED),
            Row(f"{one.name}: CPU that the run got", 100 * one.share, "% of what it was ready for"),
        )
    ]


def _check(one: RealRun, single_posts: float, further_posts: float) -> Checked:
    with _prepare(one) as (command, base_url), fake_endpoint.running() as prompt_url:
        _play(command, base_url, 8, one.concurrency)  # writes bytecode
        # The constants are told in bare POSTs: what makes CPU dear at this moment makes both dear.
        before_s = constants.measure_post_s(prompt_url)
        played = _play(command, base_url, one.rollouts, one.concurrency)
        after_s = constants.measure_post_s(prompt_url)
    post_s = (before_s + after_s) / 2 / played.worker_share
    known = Constants("this machine", single_posts * post_s, further_posts * post_s, 0.0, 100.0, 0.1, 0.0)
    workload = replace(
        one.workload,
        latency=Fixed(one.workload.latency.mean + played.endpoint_waited_s),
        verify_cpu_s=one.workload.verify_cpu_s / played.verifier_share,
        rollouts=one.rollouts,
    )
    # As many as there would be if each had a core for itself: what the cores lack is in the costs already.
    cores = len(os.sched_getaffinity(0))
    planned = forecast(workload, Endpoint(), Cluster(cores=cores), known, one.concurrency)
    assert planned.simulated.duration_s is not None
    return Checked(one.name, played.rate, one.rollouts / planned.simulated.duration_s, played.worker_share)


@contextmanager
def _prepare(one: RealRun) -> Iterator[tuple[Command, str]]:
    with tempfile.TemporaryDirectory(prefix="perf-plan-") as folder, fake_endpoint.running(one.settings) as base_url:
        command = Command(base_url, folder, one.environment)
        if one.environment == _ENVIRONMENT:
            server = Path(folder) / "resources_servers" / _ENVIRONMENT
            for path, text in (
                ("app.py", _SERVER),
                (f"configs/{_ENVIRONMENT}.yaml", _CONFIG),
                ("data/example.jsonl", _TASK),
            ):
                (server / path).parent.mkdir(parents=True, exist_ok=True)
                (server / path).write_text(text)
            command = Command(base_url, folder, one.environment, server.parent)
        yield command, base_url


_TASK = '{"responses_create_params": {"input": [{"role": "user", "content": "Say something."}]}}\n'


@dataclass(frozen=True)
class _Played:
    """A run as it went, and how busy others kept the machine meanwhile."""

    rate: float
    """Rollouts a second, from the first model call to the last line."""
    worker_share: float
    """Of the CPU that the worker was ready to use, what it got; the same for the processes of its verifier."""
    verifier_share: float
    endpoint_waited_s: float
    """How long the endpoint was kept from answering a call."""


def _play(command: Command, base_url: str, rollouts: int, concurrency: int) -> _Played:
    tasks = command.write_tasks(rollouts)
    command.output.unlink(missing_ok=True)
    before = stats(base_url, then_reset=True)
    arguments = ("--input", tasks, "--concurrency", str(concurrency), "--quiet", "--disable-aggregation")
    process = command.start(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    worker = ThreadTimes()
    verifiers = ThreadTimes()
    has_begun = False
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            worker.look(process.pid)
            verifiers.look(*(child.pid for child in psutil.Process(process.pid).children(recursive=True)))
        if not has_begun and command.output.exists() and command.output.stat().st_size:
            has_begun = True
            worker.begin()
            verifiers.begin()
        time.sleep(_LOOK_EVERY_S)
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"`gym eval run` ended with code {process.returncode}:\n{errors.decode()[-2000:]}")
    after = stats(base_url)
    return _Played(
        rollouts / (command.output.stat().st_mtime - after["first_call_at"]),
        worker.share,
        verifiers.share,
        (after["waited_s"] - before["waited_s"]) / after["responses"],
    )
