# SPDX-License-Identifier: Apache-2.0
"""What a rollout with one tool call costs: agent, model server and world in one process, the endpoint in another.

CPU is that of the host process, in bare POSTs: a rollout makes two calls to the endpoint, so nothing can cost less than
two. How rollouts are planned and recorded is not part of it.
"""

import asyncio
import resource
import time
from collections.abc import Iterator
from statistics import median

import aiohttp
import uvloop

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.http_session import close_global_aiohttp_client
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from nemo_gym.testing import running
from perf import bare_post, fake_endpoint
from perf.measure import percentile
from perf.report import Row
from perf.tasks import EndpointModel, WeatherServer, weather_task
from responses_api_agents.simple_agent.app import SimpleAgent

_CONCURRENCIES = (32, 1024)
_ROLLOUTS = 1024
_ROUNDS = 5


def run() -> list[Row]:
    """Rollouts of `simple_agent` at two levels of concurrency."""
    with fake_endpoint.running() as base_url:
        return uvloop.run(_run(base_url))


async def _run(base_url: str) -> list[Row]:
    agent = {
        "resources_server": ResourcesServerRef(type="resources_servers", name="weather"),
        "model_server": ModelServerRef(type="responses_api_models", name="model"),
    }
    model = (EndpointModel, {"base_url": f"{base_url}/v1"})
    rows: list[Row] = []
    async with running(weather=WeatherServer, model=model, agent=(SimpleAgent, agent)) as client:
        for concurrency in _CONCURRENCIES:
            rows += await _measure(client, base_url, concurrency)
        await close_global_aiohttp_client()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*rows, Row("rollouts, peak memory", peak_mib, "MiB")]


async def _measure(client: ServerClient, base_url: str, concurrency: int) -> list[Row]:
    units: list[float] = []
    rates: list[float] = []
    latencies_s: list[float] = []
    async with aiohttp.ClientSession() as session:
        for number in range(_ROUNDS + 1):
            bare_s = await bare_post.cost(session, base_url)
            cpu, begin = time.process_time(), time.perf_counter()
            took = await _play(client, concurrency)
            if number:
                units.append((time.process_time() - cpu) / _ROLLOUTS / bare_s)
                rates.append(_ROLLOUTS / (time.perf_counter() - begin))
                latencies_s += took
    name = f"rollouts, {concurrency} at once"
    return [
        Row(name, median(units), "bare POSTs of CPU each"),
        Row(name, median(rates), "a second"),
        Row(name, 1000 * percentile(latencies_s, 0.5), "ms at p50"),
        Row(name, 1000 * percentile(latencies_s, 0.99), "ms at p99"),
    ]


async def _play(client: ServerClient, concurrency: int) -> list[float]:
    """Run all rollouts; how long each took."""
    left, took = iter(range(_ROLLOUTS)), list[float]()
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(_play_some(client, left, took))
    return took


async def _play_some(client: ServerClient, left: Iterator[int], took: list[float]) -> None:
    for index in left:
        begin = time.perf_counter()
        task = {**weather_task(), "_ng_task_index": index, "_ng_rollout_index": 0}
        response = await client.post("agent", "/run", json=task)
        await raise_for_status(response)
        result = await get_response_json(response)
        assert result["reward"] == 1.0
        took.append(time.perf_counter() - begin)
