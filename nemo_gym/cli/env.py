# SPDX-License-Identifier: Apache-2.0
"""`gym env`: start the servers of a config, check one, print one."""

import asyncio
import signal
import sys

from omegaconf import DictConfig, OmegaConf

from nemo_gym.cli import render
from nemo_gym.global_config import (
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    set_global_config_dict,
)


def start(overrides: list[str]) -> int:
    """Serve until a signal comes."""
    _take(overrides)
    set_global_config_dict()
    config = get_global_config_dict()
    GlobalConfigDictParser().raise_on_no_server_instances(config)
    import uvloop

    uvloop.run(_serve_until_stopped(config))
    return 0


async def _serve_until_stopped(config: DictConfig) -> None:
    from nemo_gym.launch import serve_config

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serve_config(config) as servers:
        for server in servers:
            render.note(f"  {server.process_name} ({server.server_type}/{server.name}) {server.url}")
        render.note(f"All {len(servers)} / {len(servers)} servers ready! Stop them with Ctrl-C.")
        await stopped.wait()
    render.note("NeMo Gym finished!")


def validate(overrides: list[str]) -> int:
    """Check a config; without a model, a stand-in fills its place."""
    _take(overrides)
    parser = GlobalConfigDictParser()
    parser.raise_on_no_server_instances(
        parser.parse(
            GlobalConfigDictParserConfig(
                initial_global_config_dict=GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT, offline=True
            )
        )
    )
    render.data("✓ Config is valid.")
    return 0


def resolve(overrides: list[str]) -> int:
    """Print the merged config."""
    _take(overrides)
    config = GlobalConfigDictParser().parse(GlobalConfigDictParserConfig(offline=True, hide_secrets=True))
    render.data(OmegaConf.to_yaml(config).rstrip())
    return 0


def _take(overrides: list[str]) -> None:
    """The config system reads this process's arguments."""
    sys.argv[1:] = overrides
