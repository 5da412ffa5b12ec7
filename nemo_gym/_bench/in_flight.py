# SPDX-License-Identifier: Apache-2.0
"""What grows with the number of rollouts in flight: memory, and the latency that we add to that of the endpoint.

Each number is measured in a process of its own that hosts all servers and collects rollouts with one tool call through
them, as `gym eval run` does, from an endpoint that takes a fixed time for every answer. The latency that we add is that
of a rollout less the endpoint's own for its two calls. The endpoint takes longer where there are more in flight: it
must not have answered the first one before the last one is sent, nor ask for more a second than one core gives. Beside
it stands what a plain aiohttp client adds to the same calls, as many at once.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop

from nemo_gym._bench import fake_endpoint
from nemo_gym._bench.fake_replies import Settings
from nemo_gym._bench.measure import percentile
from nemo_gym._bench.report import Point, Row
from nemo_gym._bench.tasks import WeatherServer, weather_task
from nemo_gym._rollouts.collect import CollectSettings, collect
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.journal import Journal
from nemo_gym._rollouts.limiter import FixedLimit
from nemo_gym._rollouts.outcomes import Outcome
from nemo_gym._rollouts.play import PlaySettings
from nemo_gym._rollouts.rollout_calls import make_player
from nemo_gym._rollouts.run_manifest import Counts, InputIdentity, Manifest
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._servers.http_session import (
    GlobalAIOHTTPAsyncClientConfig,
    close_global_aiohttp_client,
    set_global_aiohttp_client,
)
from nemo_gym._util.garbage import collect_rarely
from nemo_gym._util.open_file_limit import allow_open_files
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.testing import running
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.openai_model.app import SimpleModelServer

_CALLS = 2
_STEPS = (
    # rollouts in flight, seconds that the endpoint takes, rollouts in all
    (32, 0.5, 256),
    (128, 0.5, 1024),
    (512, 1.0, 2048),
    (2048, 4.0, 4096),
    (16_000, 8.0, 16_000),
)
_PACE = 0.75
"""Seconds that a call takes at least for every second of CPU that the rollouts in flight take together."""
_MOST_BARE = 2048
_DEADLINE_S = 900.0


def run() -> list[Row]:
    """Every number of rollouts in flight."""
    rows = list[Row]()
    least_s = 0.0
    for in_flight, latency_s, rollouts in _STEPS:
        found = measure_in_process(in_flight, max(latency_s, least_s * in_flight), rollouts)
        rows += _rows(in_flight, found)
        # The wall time of a rollout on this machine as busy as it is: the last one begins before the first one ends.
        least_s = _PACE * 1e-6 * found["cpu_us"] / found["cpu_share"]
    return rows


def measure_in_process(in_flight: int, latency_s: float, rollouts: int) -> dict[str, Any]:
    """Collect so many rollouts, so many at once, in a new process and return what it took."""
    argv = [sys.executable, "-m", "nemo_gym._bench.in_flight", str(in_flight), str(latency_s), str(rollouts)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=_DEADLINE_S, check=True)
    found: dict[str, Any] = orjson.loads(done.stdout.splitlines()[-1])
    return found


def _rows(in_flight: int, found: dict[str, Any]) -> list[Row]:
    name = f"{in_flight:,} in flight"

    def at(chart: str, line: str) -> Point:
        return Point(chart, line, in_flight, "rollouts in flight")

    latency_chart = "latency added to a rollout, ms"
    memory_chart = "memory resident at its peak, MB"
    return [
        Row(f"{name}: memory", found["peak_mb"], "MB resident", point=at(memory_chart, "memory")),
        Row(f"{name}: latency added", found["p50_ms"], "ms at p50", point=at(latency_chart, "p50")),
        Row(f"{name}: latency added", found["p99_ms"], "ms at p99", point=at(latency_chart, "p99")),
        Row(f"{name}: CPU", found["cpu_us"], "µs of CPU a rollout", point=at("CPU of a rollout, µs", "CPU")),
        Row(f"{name}: most at once", found["most_in_flight"], "rollouts"),
        *(
            Row(
                f"{name}: latency added by a plain client",
                found[f"bare_{line}_ms"],
                f"ms at {line}",
                point=at(latency_chart, f"{line}, plain client"),
            )
            for line in ("p50", "p99")
            if f"bare_{line}_ms" in found
        ),
    ]


async def _collect(base_url: str, in_flight: int, latency_s: float, rollouts: int) -> dict[str, Any]:
    endpoint = {"openai_base_url": f"{base_url}/v1", "openai_api_key": "none", "openai_model": "fake"}
    agent = {
        "resources_server": ResourcesServerRef(type="resources_servers", name="weather"),
        "model_server": ModelServerRef(type="responses_api_models", name="model"),
    }
    took_s: list[float] = []

    def note(outcome: Outcome) -> None:
        took_s.append(outcome.elapsed_s)

    # As `gym eval run` sets it for as many rollouts at once.
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig(global_aiohttp_connector_limit_per_host=2 * in_flight))
    async with running(
        weather=WeatherServer, model=(SimpleModelServer, endpoint), weather_agent=(SimpleAgent, agent)
    ) as client:
        limit = FixedLimit(in_flight)
        cpu_s = time.process_time()
        with tempfile.TemporaryDirectory(prefix="perf-in-flight-") as folder, _journal(Path(folder), rollouts) as log:
            counts = await collect(
                _tasks(rollouts),
                make_player(client, PlaySettings(rollout_timeout_seconds=_DEADLINE_S), timeout=_DEADLINE_S).play,
                log,
                limit,
                RunControl(),
                CollectSettings(),
                note,
            )
        cpu_s = time.process_time() - cpu_s
        await close_global_aiohttp_client()
    if counts.scored != rollouts:
        raise RuntimeError(f"only {counts.scored} of {rollouts} rollouts were scored: {counts}")
    added_ms = [1000 * (each_s - _CALLS * latency_s) for each_s in took_s]
    return {
        "p50_ms": percentile(added_ms, 0.5),
        "p99_ms": percentile(added_ms, 0.99),
        "cpu_us": 1e6 * cpu_s / rollouts,
        "most_in_flight": limit.most_in_flight,
        **(await _measure_bare(base_url, in_flight, latency_s) if in_flight <= _MOST_BARE else {}),
    }


async def _measure_bare(base_url: str, in_flight: int, latency_s: float) -> dict[str, float]:
    """Return what a plain client adds to as many calls of the endpoint, as many at once."""
    body = orjson.dumps(weather_task()["responses_create_params"])
    headers = {"content-type": "application/json"}
    added_ms = list[float]()

    async def call_in_turn(session: aiohttp.ClientSession) -> None:
        began = time.monotonic()
        for _ in range(_CALLS):
            async with session.post(f"{base_url}/v1/responses", data=body, headers=headers) as response:
                orjson.loads(await response.read())
        added_ms.append(1000 * (time.monotonic() - began - _CALLS * latency_s))

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(call_in_turn(session))
    return {"bare_p50_ms": percentile(added_ms, 0.5), "bare_p99_ms": percentile(added_ms, 0.99)}


def _tasks(rollouts: int) -> Iterator[dict[str, Any]]:
    for index in range(rollouts):
        yield {
            **weather_task(),
            "_ng_task_index": index,
            "_ng_rollout_index": 0,
            "agent_ref": {"name": "weather_agent"},
        }


def _journal(folder: Path, rollouts: int) -> Journal:
    paths = RunPaths.of(folder / "rollouts.jsonl")
    paths.materialized_draft.touch()
    counts = Counts(requested=rollouts, not_played=rollouts)
    return Journal.begin(paths, Manifest(counts=counts, input=InputIdentity(path="", size_bytes=0, sha256="")))


def main() -> None:
    in_flight = int(sys.argv[1])
    latency_s = float(sys.argv[2])
    rollouts = int(sys.argv[3])
    settings = Settings(latency_ms=1000 * latency_s)
    allow_open_files()
    with fake_endpoint.running(settings) as base_url, collect_rarely():
        found = uvloop.run(_collect(base_url, in_flight, latency_s, rollouts))
    status = Path("/proc/self/status").read_text().splitlines()
    [peak_kb] = [line.split()[1] for line in status if line.startswith("VmHWM")]
    ran_ns, waited_ns, _ = map(int, Path("/proc/self/schedstat").read_text().split())
    print(orjson.dumps({**found, "peak_mb": int(peak_kb) / 1024, "cpu_share": ran_ns / (ran_ns + waited_ns)}).decode())


if __name__ == "__main__":
    main()
