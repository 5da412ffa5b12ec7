# SPDX-License-Identifier: Apache-2.0
"""What a rollout costs, from its row to its line in the journal: all servers in one process, the endpoint in another.

CPU is that of the host process, in bare POSTs. `single-tool` makes two calls to the endpoint, `single-turn` one, so
nothing can cost less than two and one. How rollouts are planned, and metrics, are not part of it.
"""

import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import uvloop

from nemo_gym._bench import bare_post, fake_endpoint, report
from nemo_gym._bench.measure import percentile
from nemo_gym._bench.tasks import ChoiceServer, WeatherServer, choice_task, weather_task
from nemo_gym._rollouts.collect import CollectSettings, collect
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.journal import Journal
from nemo_gym._rollouts.limiter import FixedLimit
from nemo_gym._rollouts.outcomes import Outcome, Row
from nemo_gym._rollouts.play import PlaySettings
from nemo_gym._rollouts.rollout_calls import make_player
from nemo_gym._rollouts.run_manifest import Counts, InputIdentity, Manifest
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._util.garbage import collect_rarely
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import running
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.openai_model.app import SimpleModelServer

_ROLLOUTS = 512
_ROUNDS = 15
_DEADLINE_S = 600.0


@dataclass(frozen=True)
class _Case:
    """Rollouts of one task by one agent."""

    name: str
    agent: str
    task: dict[str, Any]
    concurrency: int
    bound: float | None = None
    """In bare POSTs."""


_CASES = (
    _Case("single-tool", "weather_agent", weather_task(), 32, bound=8.0),
    _Case("single-turn", "choice_agent", choice_task(), 32, bound=5.0),
    _Case("single-tool", "weather_agent", weather_task(), 512),
)


def run() -> list[report.Row]:
    """Rollouts of `simple_agent` through `openai_model`."""
    with fake_endpoint.running() as base_url, collect_rarely():
        return uvloop.run(_run(base_url))


async def _run(base_url: str) -> list[report.Row]:
    endpoint = {"openai_base_url": f"{base_url}/v1", "openai_api_key": "none", "openai_model": "fake"}
    rows: list[report.Row] = []
    async with running(
        weather=WeatherServer,
        choice=ChoiceServer,
        model=(SimpleModelServer, endpoint),
        weather_agent=(SimpleAgent, _agent_of("weather")),
        choice_agent=(SimpleAgent, _agent_of("choice")),
    ) as client:
        for case in _CASES:
            rows += await _measure(client, base_url, case)
        await close_global_aiohttp_client()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*rows, report.Row("rollouts, peak memory", peak_mib, "MiB")]


def _agent_of(resources_server: str) -> dict[str, Any]:
    return {
        "resources_server": ResourcesServerRef(type="resources_servers", name=resources_server),
        "model_server": ModelServerRef(type="responses_api_models", name="model"),
    }


async def _measure(client: ServerClient, base_url: str, case: _Case) -> list[report.Row]:
    units: list[float] = []
    rates: list[float] = []
    latencies_s: list[float] = []
    async with aiohttp.ClientSession() as session:
        for number in range(_ROUNDS + 1):
            before_s = await bare_post.cost(session, base_url)
            cpu = time.process_time()
            begin = time.perf_counter()
            took = await _collect_all(client, case)
            cpu_s = time.process_time() - cpu
            wall_s = time.perf_counter() - begin
            after_s = await bare_post.cost(session, base_url)
            if number:
                units.append(cpu_s / _ROLLOUTS / ((before_s + after_s) / 2))
                rates.append(_ROLLOUTS / wall_s)
                latencies_s += took
    name = f"{case.name} rollout, {case.concurrency} at once"
    return [
        report.Row(name, median(units), "bare POSTs of CPU", case.bound),
        report.Row(name, median(rates), "a second"),
        report.Row(name, 1000 * percentile(latencies_s, 0.5), "ms at p50"),
        report.Row(name, 1000 * percentile(latencies_s, 0.99), "ms at p99"),
    ]


async def _collect_all(client: ServerClient, case: _Case) -> list[float]:
    """Collect all rollouts into a journal that is thrown away; return how long each took."""
    took: list[float] = []

    def note(outcome: Outcome) -> None:
        took.append(outcome.elapsed_s)

    with tempfile.TemporaryDirectory() as folder:
        with _journal(Path(folder)) as journal:
            counts = await collect(
                _rows(case),
                make_player(client, PlaySettings(rollout_timeout_seconds=_DEADLINE_S), timeout=_DEADLINE_S).play,
                journal,
                FixedLimit(case.concurrency),
                RunControl(),
                CollectSettings(),
                note,
            )
    assert counts.scored == _ROLLOUTS, counts
    return took


def _rows(case: _Case) -> Iterator[Row]:
    for index in range(_ROLLOUTS):
        yield {**case.task, "_ng_task_index": index, "_ng_rollout_index": 0, "agent_ref": {"name": case.agent}}


def _journal(folder: Path) -> Journal:
    paths = RunPaths.of(folder / "rollouts.jsonl")
    paths.materialized_draft.touch()
    manifest = Manifest(
        counts=Counts(requested=_ROLLOUTS, not_played=_ROLLOUTS), input=InputIdentity(path="", size_bytes=0, sha256="")
    )
    return Journal.begin(paths, manifest)
