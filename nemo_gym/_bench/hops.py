# SPDX-License-Identifier: Apache-2.0
"""What one call between two servers costs, within a process and over loopback HTTP: both sides, all of the way.

Client and server share one process in either case, so that the process's CPU time is that of the whole hop and nothing
is lost to switching between processes.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from omegaconf import OmegaConf

from nemo_gym._bench.measure import Samples, cpu_per_call_async, in_turns_async, median_of, ratio_of
from nemo_gym._bench.report import Row
from nemo_gym._bench.tasks import ConstantModel, WeatherServer, weather_task
from nemo_gym._servers.direct_calls import running_apps as registry
from nemo_gym._servers.http import sockets as binding
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient, SimpleServer, get_response_json, raise_for_status
from nemo_gym.testing import build_server, reply, tool_call

_CALLS = 200
_ROUNDS = 25
_HOP_BOUND = 0.35
_HOST = "127.0.0.1"


def run() -> list[Row]:
    """A tool call, a verification and a model call."""
    return uvloop.run(_run())


async def _run() -> list[Row]:
    task = weather_task()
    said = reply(tool_call("get_weather", {"city": "Oslo"}), "cold").model_dump()
    hops: dict[str, tuple[type[Any], str, str, Any]] = {
        "tool call": (WeatherServer, "resources_servers", "/get_weather", {"city": "Oslo"}),
        "verify": (WeatherServer, "resources_servers", "/verify", {**task, "response": said}),
        "model call": (ConstantModel, "responses_api_models", "/v1/responses", task["responses_create_params"]),
    }
    rows: list[Row] = []
    for name, (cls, kind, path, body) in hops.items():
        samples = await _measure(cls, kind, path, body)
        bound = _HOP_BOUND if name == "tool call" else None
        rows += [
            Row(f"{name} in process", 1e6 * median_of(samples, "in process"), "µs of CPU"),
            Row(f"{name} over HTTP", 1e6 * median_of(samples, "over HTTP"), "µs of CPU"),
            Row(f"{name} in process", ratio_of(samples, "in process", "over HTTP"), "of HTTP", bound),
        ]
    return rows


async def _measure(cls: type[SimpleServer], kind: str, path: str, body: Any) -> Samples:
    with binding.bind(_HOST, 0, "probe") as probe:
        port = probe.getsockname()[1]
    server = build_server(cls, name="target", host=_HOST, port=port)
    config = OmegaConf.create({"target": {kind: {"perf": {"host": _HOST, "port": port}}}})
    client = ServerClient(head_server_config=BaseServerConfig(host=_HOST, port=0), global_config_dict=config)
    app = server.build_complete_app(config)
    cookies: dict[str, str] = {}

    async def hop() -> None:
        response = await client.post("target", path, json=body, cookies=cookies)
        await raise_for_status(response)
        await get_response_json(response)
        cookies.update({name: morsel.value for name, morsel in response.cookies.items()})

    async with serve_inline([InlineServer("target", _HOST, port, app)]):
        await hop()
        cases: dict[str, Callable[[], Awaitable[float]]] = {
            "in process": lambda: cpu_per_call_async(hop, _CALLS),
            "over HTTP": lambda: _without_the_short_way(port, lambda: cpu_per_call_async(hop, _CALLS)),
        }
        samples = await in_turns_async(cases, _ROUNDS)
        await close_global_aiohttp_client()
    return samples


async def _without_the_short_way(port: int, sample: Callable[[], Awaitable[float]]) -> float:
    hosted = registry.find_app(_HOST, port)
    assert hosted is not None
    registry.unhost_app(_HOST, port)
    try:
        return await sample()
    finally:
        registry.host_app(_HOST, port, hosted.app)
