# SPDX-License-Identifier: Apache-2.0
"""`gym env status`: what the head server knows, and whether each server answers."""

import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from nemo_gym._transport.probe import status_of
from nemo_gym.cli import render
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient

_HEAD_TIMEOUT_S, _SERVER_TIMEOUT_S = 5, 2


def show_status(as_json: bool) -> int:
    """Print every server with its health."""
    where = ServerClient.load_head_server_config()
    servers = _servers(where)
    healthy = sum(server["status"] == "success" for server in servers)
    if as_json:
        render.json_data(servers)
    elif not servers:
        render.note(f"No head server answers at {where.host}:{where.port}.")
        render.data("No NeMo Gym servers found running.")
    else:
        render.data(_listing(servers))
        render.data(f"{len(servers)} servers found ({healthy} healthy, {len(servers) - healthy} unhealthy)\n")
    return 0 if servers and healthy == len(servers) else 1


def _servers(where: BaseServerConfig) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(
            f"http://{where.host}:{where.port}/server_instances", timeout=_HEAD_TIMEOUT_S
        ) as response:
            servers: list[dict[str, Any]] = orjson.loads(response.read())
    except (urllib.error.URLError, OSError, ValueError):
        return []
    if not servers:
        return []
    with ThreadPoolExecutor(max_workers=min(32, len(servers))) as pool:
        statuses = list(pool.map(lambda server: status_of(server["url"], _SERVER_TIMEOUT_S), servers))
    now = time.time()
    return [
        {**server, "status": status, "uptime_seconds": now - server["start_time"]}
        for server, status in zip(servers, statuses, strict=True)
    ]


def _listing(servers: list[dict[str, Any]]) -> str:
    lines = ["", "NeMo Gym Server Status:", ""]
    for number, server in enumerate(servers, 1):
        mark = "✓" if server["status"] == "success" else "✗"
        lines.append(f"[{number}] {mark} {server['process_name']} ({server['server_type']}/{server['name']})")
        shown = {
            "server_type": server["server_type"],
            "name": server["name"],
            "port": server["port"],
            "pid": server["pid"],
            "uptime_seconds": _duration(server["uptime_seconds"]),
        }
        lines += ["{", *(f"    {key!r}: {value!r}," for key, value in shown.items()), "}"]
    return "\n".join([*lines, ""])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h {minutes}m {rest:.1f}s"
