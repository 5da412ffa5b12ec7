# SPDX-License-Identifier: Apache-2.0
"""A worker of `gym eval run --workers N`: a process that hosts the inline servers of the config and runs rollouts.

    python -m nemo_gym._rollouts.workers.rollout_worker worker-1

is started by the coordinator, which passes it the config, as to a server process, and a socket for rows and outcomes.
Each worker has its servers on its own ports; it calls servers that run once for all workers over HTTP.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel

from nemo_gym._config.port_reservation import reserve_port
from nemo_gym._results.result_rows import strip_row
from nemo_gym._rollouts.play import PlaySettings
from nemo_gym._rollouts.rollout_calls import LONGEST_ROLLOUT_S, find_observer, make_player
from nemo_gym._rollouts.workers.worker_desk import WorkerDesk
from nemo_gym._servers.http.admission import AccessRules
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._servers.launching.launch import inline_spec, startup_timeout_s
from nemo_gym._servers.launching.placement_plan import ServerPlan, server_folder
from nemo_gym._servers.policy_versions.announcing import Announcement, list_told
from nemo_gym._servers.policy_versions.of_this_server import tell_servers
from nemo_gym._servers.process_environment import say_ready
from nemo_gym._servers.processes.entrypoint import LIFELINE_FD, LISTEN_FD, end_with_parent, take_fd
from nemo_gym._servers.processes.event_loop import run_beside_servers
from nemo_gym._servers.processes.loop_watch import BLOCKED_AT_END_S, BLOCKED_S, Blockage, LoopWatch
from nemo_gym._servers.processes.server_logs import route_output
from nemo_gym._servers.processes.server_supervisor import Launch, supervise
from nemo_gym._servers.ray.cluster import join_named_cluster_if_used
from nemo_gym._transport.retries import RETRIES
from nemo_gym._util.garbage import collect_rarely, skip_collection_at_exit
from nemo_gym._util.known_secrets import MaskedStream
from nemo_gym._util.open_file_limit import allow_open_files
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.errors import GymError
from nemo_gym.global_config import (
    DEFAULT_PORT_RANGE_HIGH,
    DEFAULT_PORT_RANGE_LOW,
    HEAD_SERVER_KEY_NAME,
    PORT_RANGE_HIGH_KEY_NAME,
    PORT_RANGE_LOW_KEY_NAME,
    get_first_server_config_dict,
    get_global_config_dict,
)
from nemo_gym.server_utils import ServerClient

LOG = logging.getLogger(__name__)
ORDERS_ENV = "NEMO_GYM_ROLLOUT_WORKER"
_OWN_HOST = "127.0.0.1"
_PORT_TRIES = 50


class WorkerOrders(BaseModel):
    """What the coordinator tells its workers."""

    hosted: list[str]
    """The servers that every worker hosts itself."""
    settings: PlaySettings = PlaySettings()
    """The same as in the coordinator."""


def main() -> None:
    """Work until the coordinator is gone, or asks to stop."""
    sys.stderr = cast("TextIO", MaskedStream(sys.stderr))
    lifeline = take_fd(os.environ, LIFELINE_FD)
    channel = take_fd(os.environ, LISTEN_FD)
    assert lifeline is not None, "a worker is started by its coordinator"
    assert channel is not None, "a worker is started by its coordinator"
    end_with_parent(lifeline)
    allow_open_files()
    skip_collection_at_exit()
    orders = WorkerOrders.model_validate_json(os.environ.pop(ORDERS_ENV))
    try:
        run_beside_servers(_work(socket.socket(fileno=channel), orders, get_global_config_dict()))
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit(0)
    except GymError as error:
        sys.exit(str(error))


async def _work(channel: socket.socket, orders: WorkerOrders, config: DictConfig) -> None:
    """Host the servers, and run the rows that come through `channel` until it is closed."""
    RETRIES.is_shown = not orders.settings.quiet  # the coordinator shows them
    over = asyncio.Event()
    with _watch_loop(over, orders.settings.rollout_timeout_seconds) as watch:
        async with _host_servers(config, orders.hosted):
            head = OmegaConf.to_container(config[HEAD_SERVER_KEY_NAME], resolve=True)
            client = ServerClient(head_server_config=BaseServerConfig.model_validate(head), global_config_dict=config)
            observer = find_observer(client)
            player = make_player(
                client,
                orders.settings,
                observer=observer,
                explain_lateness=watch.explain_lateness,
                timeout=LONGEST_ROLLOUT_S,
            )
            loop = asyncio.get_running_loop()
            transport, line = await loop.create_unix_connection(lambda: _CoordinatorConnection(over), sock=channel)
            desk = WorkerDesk(
                player.play, transport.write, strip_row, partial(_tell_own_servers, config, orders.hosted)
            )
            line.take = desk.take
            with collect_rarely():
                say_ready()
                await over.wait()
            await desk.close()
            if observer is not None:
                await observer.aclose()
            transport.close()


async def _tell_own_servers(config: DictConfig, hosted: Sequence[str], announced: dict[str, Any]) -> dict[str, str]:
    """Announce a policy version to the servers of this worker; return those that did not accept it."""
    announcement = Announcement.model_validate(announced)
    instances = []
    for name in hosted:
        block = get_first_server_config_dict(config, name)
        server_type = next(iter(config[name]))
        url = f"http://{block['host']}:{block['port']}"
        instances.append({"process_name": name, "server_type": str(server_type), "url": url})
    names = announcement.servers
    if names is not None:
        names = [name for name in names if name in hosted]
    return await tell_servers(list_told(instances, names), announcement)


class _CoordinatorConnection(asyncio.Protocol):
    """The worker's end of the connection to the coordinator."""

    def __init__(self, over: asyncio.Event) -> None:
        self._over = over
        self.take: Callable[[bytes], None] = lambda data: None

    def data_received(self, data: bytes) -> None:
        self.take(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._over.set()


@contextmanager
def _watch_loop(over: asyncio.Event, timeout_s: float | None) -> Iterator[LoopWatch]:
    """End on signals, and name servers that block the event loop; one that does so for `timeout_s` is interrupted."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    signals = list[int]()

    def stop(number: int) -> None:
        # The first signal asks for an orderly end; a second one means not to wait for it.
        is_first = not signals and not over.is_set()
        signals.append(number)
        loop.call_soon_threadsafe(over.set if is_first else task.cancel)

    def tell(blockage: Blockage) -> None:
        LOG.warning("%s", blockage)

    def give_up(blockage: Blockage) -> None:
        LOG.error("%s, and cannot be interrupted: this worker ends", blockage)
        os._exit(1)  # the coordinator gives its rollouts to other workers

    watch = LoopWatch(
        on_signal=stop,
        on_blocked=tell,
        on_stuck=give_up,
        named_after_s=lambda: BLOCKED_AT_END_S if signals else BLOCKED_S,
        most_blocked_s=lambda: BLOCKED_AT_END_S if signals else timeout_s or math.inf,
    )
    with watch.watch((signal.SIGINT, signal.SIGTERM)):
        yield watch


@asynccontextmanager
async def _host_servers(config: DictConfig, names: Sequence[str]) -> AsyncIterator[None]:
    """Serve the servers `names` of `config` on ports of this process, and put these into `config`."""
    low = config.get(PORT_RANGE_LOW_KEY_NAME) or DEFAULT_PORT_RANGE_LOW
    high = config.get(PORT_RANGE_HIGH_KEY_NAME) or DEFAULT_PORT_RANGE_HIGH
    plans = list[ServerPlan]()
    for name in names:
        block = get_first_server_config_dict(config, name)
        block["host"] = _OWN_HOST
        block["port"] = reserve_port(_OWN_HOST, low, high, (), _PORT_TRIES)
        (server_type, impls), *_ = config[name].items()
        impl = str(next(iter(impls)))
        where = {"entrypoint": block["entrypoint"], "host": block["host"], "port": block["port"]}
        folder = server_folder(str(server_type), impl)
        why = "every worker has one"
        plans.append(ServerPlan(name, str(server_type), impl, folder, placement="inline", why=why, **where))
    log_dir = config.get("nemo_gym_log_dir")
    launch = Launch(
        head=None,
        inline=[inline_spec(config, plan) for plan in plans],
        children=[],
        startup_timeout_s=startup_timeout_s(config),
        access=AccessRules.from_config(config),
    )
    try:
        with route_output(Path(log_dir) if log_dir else None) as logs:
            async with supervise(launch, logs, lambda text: None):
                await asyncio.to_thread(join_named_cluster_if_used, config)
                yield
    finally:
        await close_global_aiohttp_client()


if __name__ == "__main__":
    main()
