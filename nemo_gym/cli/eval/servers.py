# SPDX-License-Identifier: Apache-2.0
"""The servers of an evaluation: its own, started from the config, or servers that are already running."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.outcomes import Play
from nemo_gym._rollouts.play import Observer
from nemo_gym._rollouts.rollout_calls import LONGEST_ROLLOUT_S, make_player
from nemo_gym._util.nearest import did_you_mean
from nemo_gym._util.open_file_limit import allow_open_files
from nemo_gym.cli import render
from nemo_gym.cli.eval.run_settings import EvalRunConfig
from nemo_gym.cli.settings import reserve_head_port
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import GlobalConfigDictParser
from nemo_gym.server_utils import ServerClient

if TYPE_CHECKING:
    from nemo_gym._servers.launching.launch import Served
    from nemo_gym._servers.policy_versions.announcing import RunVersion
    from nemo_gym.cli.eval.interrupts import RunInterrupts

_OTHER_FILES = 512
_FEWEST_CONNECTIONS = 64
_MOST_CONNECTIONS = 100 * 1024


def find_running(settings: EvalRunConfig) -> ServerClient | None:
    """Return a client for the servers that are already running, if the run uses those."""
    return ServerClient.load_from_global_config() if settings.no_serve else None


def find_agents(config: DictConfig, settings: EvalRunConfig, running: ServerClient | None) -> list[str]:
    """Return the names of the available agents; the requested one must be among them."""
    if running is not None:
        config = running.global_config_dict
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    agents = [instance.name for instance in instances if instance.SERVER_TYPE == "responses_api_agents"]
    if settings.agent_name is not None and settings.agent_name not in agents:
        where = "among the servers that run" if settings.no_serve else "in the config"
        guess = did_you_mean(settings.agent_name, agents)
        raise ConfigError(f"--agent {settings.agent_name}: there is no such agent {where}. {guess}".rstrip())
    return agents


@asynccontextmanager
async def reach_servers(
    config: DictConfig, settings: EvalRunConfig, running: ServerClient | None
) -> AsyncIterator[tuple[ServerClient, "Served | None"]]:
    """Yield a client for the servers: `running`, or the config's own, which run while the context lasts."""
    from nemo_gym._servers.http_session import close_global_aiohttp_client
    from nemo_gym._servers.launching.launch import serve_config, wait_for_models

    if running is not None:
        try:
            if settings.wait_for_model:
                # Only then: an endpoint may be reachable from the servers but not from this machine.
                await wait_for_models(running.global_config_dict, render.note, render.count, settings.wait_for_model)
            yield running, None
        finally:
            await close_global_aiohttp_client()
        return
    reserve_head_port(config)
    within_s = settings.seconds_for_models(config)
    async with serve_config(config, render.note, render.count, models_within_s=within_s) as served:
        yield ServerClient.load_from_global_config(), served


@asynccontextmanager
async def open_play(
    config: DictConfig,
    settings: EvalRunConfig,
    client: ServerClient,
    observer: Observer | None,
    control: RunControl,
    interrupts: "RunInterrupts",
    versions: "RunVersion | None" = None,
) -> AsyncIterator[Play]:
    """Yield what runs rows: this process, or as many workers as `settings` asks for, while the context lasts.

    `versions` tells the servers of workers about policy versions.
    """
    count = settings.count_workers()
    on = settings.rollout_workers_on
    if count == 1 and on == "machine":
        player = make_player(
            client,
            settings,
            observer=observer,
            explain_lateness=interrupts.explain_lateness,
            timeout=LONGEST_ROLLOUT_S,
        )
        yield player.play
        return
    from nemo_gym._rollouts.workers.rollout_worker import WorkerOrders
    from nemo_gym._rollouts.workers.run_workers import list_hosted, open_workers

    orders = WorkerOrders(hosted=list_hosted(config), settings=settings)
    cpus_on_ray = None
    if on == "ray":
        cpus_on_ray = settings.rollout_worker_cpus
    opened = open_workers(config, count, orders, control, render.note, cpus_on_ray=cpus_on_ray, versions=versions)
    async with opened as pool:
        yield pool.play


def choose_agents_to_ask(client: ServerClient, served: "Served | None") -> frozenset[str] | None:
    """Return the agents to ask for their own metrics; None for all."""
    if served is None:
        return None
    if served.has_lost_one:
        return frozenset()  # an agent may have to call the dead one
    from nemo_gym._servers.launching.launch import agents_to_ask

    return agents_to_ask(client.global_config_dict)


def allow_many_connections(config: DictConfig, settings: EvalRunConfig) -> None:
    """Allow as many connections and open files as rollouts may run at once."""
    wanted = settings.num_samples_in_parallel or 0
    if wanted > 512 and config.get("global_aiohttp_connector_limit_per_host") is None:
        config["global_aiohttp_connector_limit_per_host"] = 2 * wanted
    files = allow_open_files()
    if files is None or config.get("global_aiohttp_connector_limit") is not None:
        return
    connections = max(_FEWEST_CONNECTIONS, files - _OTHER_FILES)
    if connections >= _MOST_CONNECTIONS:
        return
    # A call beyond this waits for a connection; one beyond the system's limit would fail.
    config["global_aiohttp_connector_limit"] = connections
    if connections < wanted:
        render.note(
            f"only {connections} of {wanted} rollouts can have a connection at once: "
            f"this process may open {files} files\nhint: raise the limit with `ulimit -Hn`, or lower --concurrency"
        )
