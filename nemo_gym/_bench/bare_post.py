# SPDX-License-Identifier: Apache-2.0
"""The unit of the rollout benchmarks: the CPU that one bare aiohttp POST costs the client, JSON by orjson both ways.

No server of ours takes part: it is what the network and JSON cost at least, on this machine, at this moment.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import orjson
import uvloop

from nemo_gym._bench import fake_endpoint
from nemo_gym._bench.report import Row
from nemo_gym._bench.tasks import weather_task

_POSTS = 2000
_CONCURRENCY = 32
_ROUNDS = 5
_HEADERS = {"content-type": "application/json"}


def run() -> list[Row]:
    """What one bare POST costs."""
    with fake_endpoint.running() as base_url:
        cpu_s = uvloop.run(_median_cost(base_url))
    return [Row("bare POST", 1e6 * cpu_s, "µs of CPU")]


async def _median_cost(base_url: str) -> float:
    async with aiohttp.ClientSession() as session:
        costs = [await cost(session, base_url) for _ in range(_ROUNDS + 1)]
    return sorted(costs[1:])[_ROUNDS // 2]


async def cost(session: aiohttp.ClientSession, base_url: str, concurrency: int = _CONCURRENCY) -> float:
    """The CPU seconds of this process per POST, with `concurrency` of them under way at any time."""
    body: dict[str, Any] = weather_task()["responses_create_params"]
    left = iter(range(_POSTS))
    begin = time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(_post_all(session, f"{base_url}/v1/responses", body, left))
    return (time.process_time() - begin) / _POSTS


async def _post_all(session: aiohttp.ClientSession, url: str, body: dict[str, Any], left: Iterator[int]) -> None:
    for _ in left:
        async with session.post(url, data=orjson.dumps(body), headers=_HEADERS) as response:
            orjson.loads(await response.read())
