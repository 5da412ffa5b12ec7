# SPDX-License-Identifier: Apache-2.0
"""Workers of a run as Ray actors: each starts the same worker process that this machine would, on its own node.

The actor is only an outpost: it unpacks the code of servers and the config, starts the process, and passes messages
both ways. Ray does not restart an actor whose node dies: the pool of the run starts another one, which Ray places on a
live node. `nemo_gym` must be installed on the nodes.
"""

import asyncio
import io
import os
import sys
import zipfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from nemo_gym import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME
from nemo_gym._rollouts.workers.rollout_worker import WorkerOrders
from nemo_gym._rollouts.workers.worker_processes import WorkerProcess
from nemo_gym._servers.launching.placement_plan import server_folder
from nemo_gym._servers.process_environment import CONFIG_FILE_ENV, run_files_folder
from nemo_gym._servers.processes import private_run_files as run_files
from nemo_gym._servers.processes.server_process import ServerLate
from nemo_gym._servers.ray.cluster import RAY_ADDRESS_ENV, join_or_start_cluster
from nemo_gym._servers.ray.replica_actor import find_node_address, find_node_cache, merge_environment, unpack
from nemo_gym._servers.ray.replica_calls import is_placed_on_ray
from nemo_gym._util.reachable_addresses import is_loopback, reachable_host
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import HEAD_SERVER_KEY_NAME, GlobalConfigDictParser, get_first_server_config_dict

_STOP_TIMEOUT_S = 20.0
_LEFT_OUT = (".venv", "__pycache__", ".git")


@asynccontextmanager
async def join_cluster(config: DictConfig) -> AsyncIterator[None]:
    """Join the Ray cluster that `config` names, or one that is started here, while the context lasts."""
    was_joined = "ray" in sys.modules and sys.modules["ray"].is_initialized()  # by a server of this process
    # In a thread: joining takes seconds, and in the main thread Ray would take the signals that end a run.
    await asyncio.to_thread(join_or_start_cluster, config)
    import ray

    try:
        yield
    finally:
        if not was_joined:
            await asyncio.to_thread(ray.shutdown)


class RayWorker:
    """A worker on some node of the cluster; see `nemo_gym._rollouts.workers.worker_pool.Worker`."""

    def __init__(self, name: str, actor: Any, on_data: Callable[[bytes], None], on_line: Callable[[str], None]) -> None:
        self._name = name
        self._actor = actor
        self._on_data = on_data
        self._on_line = on_line
        self._end: asyncio.Task[str] | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        on_data: Callable[[bytes], None],
        *,
        order: Mapping[str, Any],
        needed_hosts: Mapping[str, str],
        num_cpus: float,
        on_line: Callable[[str], None],
        timeout_s: float,
    ) -> "RayWorker":
        """Start the worker `name` on the node that Ray chooses; `order` is for `WorkerOutpost.start`.

        `needed_hosts` are the servers that it will call, and where they listen.
        """
        import ray

        remote: Any = ray.remote(WorkerOutpost)  # untyped
        actor = remote.options(num_cpus=num_cpus, scheduling_strategy="SPREAD", max_restarts=0).remote()
        worker = cls(name, actor, on_data, on_line)
        try:
            async with asyncio.timeout(timeout_s):
                node = await actor.find_node_address.remote()
                require_reachable(needed_hosts, node, find_node_address())
                await actor.start.remote(name, **order)
        except TimeoutError:
            late = f"Ray has found no node with {num_cpus:g} free CPUs for it, or it is slow to start: see `ray status`"
            await worker.stop()
            raise ServerLate(timeout_s, {name: [late]}) from None
        except BaseException:
            await worker.stop()
            raise
        worker._end = asyncio.create_task(worker._receive())
        return worker

    def send(self, frame: bytes) -> None:
        self._actor.send.remote(frame)

    async def wait_for_end(self) -> str:
        assert self._end is not None
        return await asyncio.shield(self._end)

    async def stop(self) -> None:
        import ray

        with suppress(Exception):  # it may already be gone, with its node
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._actor.stop.remote()
        with suppress(Exception):
            ray.kill(self._actor)
        if self._end is not None:
            self._end.cancel()
            await asyncio.gather(self._end, return_exceptions=True)

    async def _receive(self) -> str:
        """Pass on what the worker sends and prints until it ends; return how it ended."""
        from ray.exceptions import RayError

        while True:
            try:
                data, lines, ended = await self._actor.receive.remote()
            except RayError as error:
                return f"was lost with its Ray actor: {str(error).strip().splitlines()[0]}"
            for line in lines:
                self._on_line(line)
            for piece in data:
                self._on_data(piece)
            if ended is not None:
                return str(ended)


class WorkerOutpost:
    """The actor: it keeps one worker process on its node."""

    def __init__(self) -> None:
        self._data = list[bytes]()
        self._lines = list[str]()
        self._news = asyncio.Event()
        self._ended = cast("str | None", None)
        self._stack = AsyncExitStack()
        self._worker: WorkerProcess | None = None

    async def find_node_address(self) -> str:
        """Return where this node can be reached."""
        return find_node_address()

    async def start(
        self,
        name: str,
        orders: str,
        config: str,
        code: bytes,
        environment: Mapping[str, str],
        ray_address: str,
        timeout_s: float,
    ) -> None:
        """Start the worker process; `code` are the server folders, see `pack_servers`."""
        folder = await asyncio.to_thread(unpack, code, find_node_cache() / "code")
        path = self._stack.enter_context(run_files.private_file(run_files_folder(), config))
        roots = [str(folder), *filter(None, environment.get(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, "").split(os.pathsep))]
        self._worker = await WorkerProcess.start(
            name,
            self._note_data,
            orders=WorkerOrders.model_validate_json(orders),
            environment={
                **merge_environment(dict(environment)),
                CONFIG_FILE_ENV: str(path),
                NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME: os.pathsep.join(roots),
                RAY_ADDRESS_ENV: ray_address,
            },
            on_line=self._note_line,
            timeout_s=timeout_s,
        )
        self._watching = asyncio.create_task(self._watch(self._worker))

    async def send(self, frame: bytes) -> None:
        """Pass a frame on to the worker."""
        if self._worker is not None:
            self._worker.send(frame)

    async def receive(self) -> tuple[list[bytes], list[str], str | None]:
        """Wait for news; return what the worker has sent, what it has printed, and how it ended if it has."""
        await self._news.wait()
        self._news.clear()
        data = self._data
        self._data = []
        lines = self._lines
        self._lines = []
        return data, lines, self._ended

    async def stop(self) -> None:
        """End the worker, and remove its config."""
        if self._worker is not None:
            await self._worker.stop()
        await self._stack.aclose()

    async def _watch(self, worker: WorkerProcess) -> None:
        self._ended = await worker.wait_for_end()
        self._news.set()

    def _note_data(self, data: bytes) -> None:
        self._data.append(data)
        self._news.set()

    def _note_line(self, line: str) -> None:
        self._lines.append(line)
        self._news.set()


def fit_into_cluster(count: int | None, num_cpus: float, notice: Callable[[str], None]) -> int:
    """Return `count`, or as many workers as the cluster has CPUs for; print a note if some have to wait for CPUs."""
    import ray

    cluster: Any = ray  # untyped
    total = float(cluster.cluster_resources().get("CPU", 0.0))
    free = float(cluster.available_resources().get("CPU", 0.0))
    wanted = count or max(1, int(total / (num_cpus or 1.0)))
    if wanted * num_cpus > free:
        notice(
            f"{wanted} workers take {wanted * num_cpus:g} CPUs, and {free:g} of the {total:g} CPUs of the Ray cluster "
            "are free: waiting for the others"
        )
    return wanted


# --- what nodes need --------------------------------------------------------------------------------------------------


def find_needed_hosts(config: DictConfig, hosted: Sequence[str]) -> dict[str, str]:
    """Return the servers of `config` that workers call over the network, and where they listen.

    Those that Ray has placed are reachable; the head server knows where.
    """
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    blocks = {one.name: one.get_inner_run_server_config_dict() for one in instances if one.name not in hosted}
    needed = {name: str(block["host"]) for name, block in blocks.items() if not is_placed_on_ray(config, block)}
    if len(needed) < len(blocks):
        needed[HEAD_SERVER_KEY_NAME] = str(config[HEAD_SERVER_KEY_NAME]["host"])
    return needed


def require_reachable(needed_hosts: Mapping[str, str], node: str, here: str) -> None:
    """Raise unless a worker on `node` can reach the servers that this machine, `here`, runs for all workers."""
    hidden = [name for name, host in needed_hosts.items() if is_loopback(host)]
    if hidden and node != here:
        raise ConfigError(
            f"a worker on the node {node} cannot reach {', '.join(map(repr, hidden))}: they listen on this machine "
            f"({here}) for this machine only.\n"
            f"hint: `++default_host={here}` lets other nodes in, and `access_token: SECRET` in env.yaml keeps "
            "everybody else out"
        )


def pack_servers(config: DictConfig, hosted: Iterable[str]) -> bytes:
    """Return the folders of the servers `hosted` as an archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        folders = set[Path]()
        for name in hosted:
            server_type, impls = next(iter(config[name].items()))
            impl = next(iter(impls))
            folder = server_folder(server_type, impl)
            if folder in folders:
                continue
            folders.add(folder)
            for path in sorted(folder.rglob("*")):
                inside = path.relative_to(folder)
                if path.is_file() and not set(inside.parts).intersection(_LEFT_OUT):
                    packed.write(path, Path(server_type, impl, inside))
    return archive.getvalue()


def write_order(config: DictConfig, orders: WorkerOrders, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the order for a worker on any node; the cluster must have been joined."""
    import ray

    advertised = config.copy()
    needed = [name for name in find_needed_hosts(config, orders.hosted) if name != HEAD_SERVER_KEY_NAME]
    blocks = [get_first_server_config_dict(advertised, name) for name in needed]
    for block in (advertised[HEAD_SERVER_KEY_NAME], *blocks):
        block["host"] = reachable_host(str(block["host"]))
    return {
        "orders": orders.model_dump_json(),
        "config": OmegaConf.to_yaml(advertised),
        "code": ray.put(pack_servers(config, orders.hosted)),  # sent once, and to each node that needs it
        "environment": dict(environment),
        "ray_address": ray.get_runtime_context().gcs_address,
    }
