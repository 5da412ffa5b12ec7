# SPDX-License-Identifier: Apache-2.0
"""Start the servers of a config in this process: all on one event loop, each on its own port, with a head server."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._serving.entrypoint import load_server_class
from nemo_gym._serving.host import InlineServer, serve_inline
from nemo_gym.config_types import BaseServerConfig, ServerInstanceConfig
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import HEAD_SERVER_KEY_NAME, GlobalConfigDictParser
from nemo_gym.http_session import close_global_aiohttp_client
from nemo_gym.process_env import run_token_path
from nemo_gym.server_utils import HeadServer, ServerInstanceDisplayConfig, SimpleServer


@asynccontextmanager
async def serve_config(config: DictConfig) -> AsyncIterator[list[ServerInstanceDisplayConfig]]:
    """Serve every server of `config`, which must be the config of this process, while the context lasts."""
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    servers = [_inline_server(config, instance) for instance in instances]
    head = HeadServer(
        config=BaseServerConfig.model_validate(OmegaConf.to_container(config[HEAD_SERVER_KEY_NAME], resolve=True))
    )
    displays = [_display(config, instance) for instance in instances]
    head.set_server_instances([display.model_dump(mode="json") for display in displays])
    head_app = head.setup_webserver()
    everything = [*servers, InlineServer(HEAD_SERVER_KEY_NAME, head.config.host, head.config.port, head_app)]
    try:
        async with serve_inline(everything):
            yield displays
    finally:
        run_token_path(head.config).unlink(missing_ok=True)
        await close_global_aiohttp_client()


def server_folder(server_type: str, impl: str) -> Path:
    """The folder of a server implementation, found in the search roots."""
    relative = Path(server_type) / impl
    folder = _resolve_under_cwd_or_install(relative, validator=lambda path: path.is_dir())
    if not folder.is_dir():
        raise ConfigError(
            f"the config names the server implementation {str(relative)!r}, but no search root holds that folder.\n"
            "hint: check the name, or add the folder above it to NEMO_GYM_EXTRA_ROOTS"
        )
    return folder


def _inline_server(config: DictConfig, instance: ServerInstanceConfig) -> InlineServer:
    block = instance.get_inner_run_server_config_dict()
    folder = server_folder(*_type_and_impl(config, instance.name))
    cls = load_server_class(folder, block["entrypoint"], SimpleServer)
    server = cls.from_global_config(config, instance.name)
    return InlineServer(instance.name, server.config.host, server.config.port, server.finished_app(config))


def _type_and_impl(config: DictConfig, name: str) -> tuple[str, str]:
    (server_type, impls), *_ = config[name].items()
    return str(server_type), str(next(iter(impls)))


def _display(config: DictConfig, instance: ServerInstanceConfig) -> ServerInstanceDisplayConfig:
    server_type, impl = _type_and_impl(config, instance.name)
    block: Any = instance.get_inner_run_server_config_dict()
    return ServerInstanceDisplayConfig(
        config_path=instance.name,
        dir_path=server_folder(server_type, impl),
        entrypoint=block["entrypoint"],
        host=block["host"],
        name=impl,
        pid=os.getpid(),
        port=block["port"],
        process_name=instance.name,
        server_type=server_type,
        start_time=time.time(),
        url=f"http://{block['host']}:{block['port']}",
    )
