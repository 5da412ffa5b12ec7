# SPDX-License-Identifier: Apache-2.0
"""`gym env status`: show the servers that the head server lists, and whether each one answers."""

import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pydantic import TypeAdapter

from nemo_gym._servers.process_environment import run_token_header
from nemo_gym._transport.probe import status_of
from nemo_gym.cli import render
from nemo_gym.cli.settings import CheckedParser, split_off
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict
from nemo_gym.server_utils import ServerClient, ServerInstanceDisplayConfig, ServerStatus

_HEAD_TIMEOUT_S = 5
_SERVER_TIMEOUT_S = 2
_INSTANCES = TypeAdapter(list[ServerInstanceDisplayConfig])


class StatusCommand:
    """The status of running servers, for programs: `StatusCommand().discover_servers()`."""

    def discover_servers(self) -> list[ServerInstanceDisplayConfig]:
        """Return every server that the head server lists, each with its health; none if no head server answers."""
        listed = _ask_head_server(ServerClient.load_head_server_config())
        if not listed:
            return []
        with ThreadPoolExecutor(max_workers=min(32, len(listed))) as pool:
            statuses = list(pool.map(self.check_health, listed))
        now = time.time()
        ages = [None if server.start_time is None else now - server.start_time for server in listed]
        return [
            server.model_copy(update={"status": status, "uptime_seconds": age})
            for server, status, age in zip(listed, statuses, ages, strict=True)
        ]

    def check_health(self, server: ServerInstanceDisplayConfig) -> ServerStatus:
        """Return whether `server` answers."""
        return status_of(server.url or "", _SERVER_TIMEOUT_S)

    def display_status(self, servers: Sequence[ServerInstanceDisplayConfig]) -> None:
        """Print `servers` as text."""
        if not servers:
            where = ServerClient.load_head_server_config()
            render.note(f"No head server answers at {where.host}:{where.port}.")
            render.data("No NeMo Gym servers found running.")
            return
        healthy = sum(server.status == "success" for server in servers)
        render.data(_format_servers(servers))
        render.data(f"{len(servers)} servers found ({healthy} healthy, {len(servers) - healthy} unhealthy)\n")


def show_status(overrides: list[str]) -> int:
    """Show running servers; return 1 if one is unhealthy."""
    own, rest = split_off(overrides, "json")
    get_global_config_dict(GlobalConfigDictParserConfig(offline=True, overrides=rest), CheckedParser)
    command = StatusCommand()
    servers = command.discover_servers()
    if own.get("json"):
        render.json_data([server.model_dump(mode="json", exclude_unset=True) for server in servers])
    else:
        command.display_status(servers)
    return int(not all(server.status == "success" for server in servers))


def _ask_head_server(where: BaseServerConfig) -> list[ServerInstanceDisplayConfig]:
    try:
        url = f"http://{where.host}:{where.port}/server_instances"
        request = urllib.request.Request(url, headers=run_token_header(where))
        with urllib.request.urlopen(request, timeout=_HEAD_TIMEOUT_S) as response:
            return _INSTANCES.validate_json(response.read())
    except (urllib.error.URLError, OSError, ValueError):
        return []


def _format_servers(servers: Sequence[ServerInstanceDisplayConfig]) -> str:
    lines = ["", "NeMo Gym Server Status:", ""]
    for number, server in enumerate(servers, 1):
        mark = "✓" if server.status == "success" else "✗"
        lines.append(f"[{number}] {mark} {server.process_name} ({server.server_type}/{server.name})")
        shown = {
            "server_type": server.server_type,
            "name": server.name,
            "port": server.port,
            "pid": server.pid,
            **({"replica": server.replica, "node": server.node, "url": server.url} if server.replica else {}),
            "uptime_seconds": None if server.uptime_seconds is None else _format_duration(server.uptime_seconds),
        }
        lines += ["{", *(f"    {key!r}: {value!r}," for key, value in shown.items()), "}"]
    return "\n".join([*lines, ""])


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h {minutes}m {rest:.1f}s"
