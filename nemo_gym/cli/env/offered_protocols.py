# SPDX-License-Identifier: Apache-2.0
"""`gym env start --as`: resources servers for clients that speak OpenEnv or MCP.

Only the resources servers of the config are started, and the models that they call: clients bring their own agent and
model.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, get_args

from omegaconf import DictConfig

from nemo_gym._config.port_reservation import reserve_port
from nemo_gym._config.reserved_keys import DEFAULT_HOST
from nemo_gym._servers.mcp.protocol import URL_PATH
from nemo_gym.cli.default_model import find_models
from nemo_gym.cli.env.check import Shipped, find_resources_servers, find_stand_in
from nemo_gym.cli.env.run_helper import RunHelper
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.settings import parse_config
from nemo_gym.global_config import (
    PORT_RANGE_HIGH_KEY_NAME,
    PORT_RANGE_LOW_KEY_NAME,
    GlobalConfigDictParser,
    get_global_config_dict,
)
from nemo_gym.server_utils import ServerClient

Protocol = Literal["openenv", "mcp"]
_PORT_TRIES = 50


class Offer:
    """The resources servers of a config, and how clients of one protocol reach them."""

    def __init__(self, overrides: list[str], protocol: str) -> None:
        if protocol not in get_args(Protocol):
            raise UsageError(f"resources servers cannot be served as {protocol!r}.\nhint: openenv or mcp")
        self.protocol = protocol
        config = parse_config(overrides, needs_model=False)
        self._servers = find_resources_servers(config)
        if not self._servers:
            raise UsageError(f"{', '.join(config.config_paths)}: there is no resources server to serve as {protocol}")
        self.overrides = [*overrides, *self._drop_others(config), *self._turn_on_mcp(config)]
        self.urls: dict[str, str] = {}
        """The URL of each server by name, known once they are ready."""

    def _drop_others(self, config: DictConfig) -> list[str]:
        asked = {server.name for server in self._servers}.union(
            *(find_models(server.block) for server in self._servers)
        )
        instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
        return [f"~{one.name}" for one in instances if one.name not in {*asked, find_stand_in(config)}]

    def _turn_on_mcp(self, config: DictConfig) -> list[str]:
        if self.protocol != "mcp":
            return []
        impls = {server.name: next(iter(config[server.name]["resources_servers"])) for server in self._servers}
        return [f"++{name}.resources_servers.{impl}.expose_tools_over_mcp=true" for name, impl in impls.items()]

    def open_helper(self) -> RunHelper:
        """Return the helper that starts the servers."""
        return RunHelper(self._serve_openenv if self.protocol == "openenv" else self._find_mcp)

    @asynccontextmanager
    async def _serve_openenv(self) -> AsyncIterator[None]:
        from nemo_gym.integrations.openenv import serve_openenv

        config = get_global_config_dict()
        host = config.get("default_host") or DEFAULT_HOST
        port = config.get("openenv_port")
        if port is None:
            low = config[PORT_RANGE_LOW_KEY_NAME]
            high = config[PORT_RANGE_HIGH_KEY_NAME]
            port = reserve_port(host, low, high, list(config.disallowed_ports), _PORT_TRIES)
        rows = {server.name: _find_rows(server) for server in self._servers}
        async with serve_openenv(ServerClient.load_from_global_config(), rows, host, int(port)) as urls:
            self.urls = urls
            yield

    @asynccontextmanager
    async def _find_mcp(self) -> AsyncIterator[None]:
        client = ServerClient.load_from_global_config()
        self.urls = {server.name: f"{client._find_address(server.name).base_url}{URL_PATH}" for server in self._servers}
        yield


def _find_rows(server: Shipped) -> Path | None:
    return server.rows_path if server.rows_path.is_file() else None
