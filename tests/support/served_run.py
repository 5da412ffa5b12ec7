# SPDX-License-Identifier: Apache-2.0
"""A whole run in this process: a head server and the servers that it lists, each on a port of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym._servers.head_app import build_head_app
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._servers.policy_versions.announcing import RunVersion
from nemo_gym._servers.policy_versions.of_this_server import tell_servers
from nemo_gym._servers.process_environment import RUN_TOKEN_ENV
from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient, SimpleServer
from nemo_gym.testing import _build_config_block, build_server
from tests.support.small_servers import free_port

TOKEN = "the token of this run"
HOST = "127.0.0.1"


@dataclass(frozen=True)
class ServedRun:
    """What a trainer knows of a run."""

    head: BaseServerConfig
    client: ServerClient
    versions: RunVersion
    urls: dict[str, str]
    instances: list[dict[str, Any]]
    servers: dict[str, SimpleServer]


@asynccontextmanager
async def serve_run(
    monkeypatch, **servers: type[SimpleServer] | tuple[type[SimpleServer], dict]
) -> AsyncIterator[ServedRun]:
    """Serve servers by class, or by class and config; this process holds the token of the run."""
    monkeypatch.setenv(RUN_TOKEN_ENV, TOKEN)
    built = dict[str, SimpleServer]()
    for name, given in servers.items():
        cls, fields = given if isinstance(given, tuple) else (given, {})
        built[name] = build_server(cls, name=name, **{"host": HOST, "port": free_port(), **fields})
    where = {"host": HOST, "port": free_port()}
    config = OmegaConf.create({"head_server": where, **{n: _build_config_block(s) for n, s in built.items()}})
    assert isinstance(config, DictConfig)
    head = BaseServerConfig(**where)
    client = ServerClient(head_server_config=head, global_config_dict=config)
    urls = {name: f"http://{HOST}:{server.config.port}" for name, server in built.items()}
    instances = [
        {"process_name": name, "server_type": str(next(iter(config[name]))), "url": url} for name, url in urls.items()
    ]
    versions = RunVersion(tell_servers)
    app = build_head_app(lambda _: OmegaConf.to_yaml(config), lambda: instances, TOKEN, versions)
    inline = [InlineServer("head_server", HOST, where["port"], app)]
    for name, server in built.items():
        server.server_client = client
        inline.append(InlineServer(name, HOST, server.config.port, server.build_complete_app(config)))
    async with serve_inline(inline):
        try:
            yield ServedRun(head, client, versions, urls, instances, built)
        finally:
            await close_global_aiohttp_client()
