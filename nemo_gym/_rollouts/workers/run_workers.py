# SPDX-License-Identifier: Apache-2.0
"""The workers of a run whose servers are up: which servers each worker hosts, and where the workers run."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.workers.rollout_worker import WorkerOrders
from nemo_gym._rollouts.workers.worker_pool import Worker, WorkerPool
from nemo_gym._rollouts.workers.worker_processes import WorkerProcess
from nemo_gym._servers.launching.launch import find_inline_class, share_config, startup_timeout_s
from nemo_gym._servers.policy_versions.announcing import RunVersion
from nemo_gym._servers.process_environment import export_run_token
from nemo_gym._servers.processes.server_logs import ServerLogs
from nemo_gym.global_config import GlobalConfigDictParser


def list_hosted(config: DictConfig) -> list[str]:
    """Return the servers of `config` that every worker hosts: those of this process without `run_once`."""
    hosted = list[str]()
    for instance in GlobalConfigDictParser().filter_for_server_instance_configs(config):
        cls = find_inline_class(config, instance)
        if cls is not None and not cls.config_of_instance(config, instance.name).run_once:
            hosted.append(instance.name)
    return hosted


@asynccontextmanager
async def open_workers(
    config: DictConfig,
    count: int | None,
    orders: WorkerOrders,
    control: RunControl,
    notice: Callable[[str], None],
    *,
    cpus_on_ray: float | None = None,
    versions: RunVersion | None = None,
) -> AsyncIterator[WorkerPool]:
    """Run `count` workers while the context lasts; the servers of `config` are already up.

    They are processes on this machine, unless `cpus_on_ray` says how many CPUs of a Ray cluster each takes; there, None
    means as many as the cluster has room for. `versions` tells the servers of workers about policy versions.
    """
    log_dir = config.get("nemo_gym_log_dir")
    timeout_s = startup_timeout_s(config)
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(closing(ServerLogs(Path(log_dir) if log_dir else None, sys.stderr)))
        environment = stack.enter_context(share_config(config))
        if cpus_on_ray is None:

            async def start(name: str, on_data: Callable[[bytes], None]) -> Worker:
                return await WorkerProcess.start(
                    name,
                    on_data,
                    orders=orders,
                    environment=environment,
                    on_line=partial(logs.line, name),
                    timeout_s=timeout_s,
                )

        else:
            from nemo_gym._rollouts.workers import ray_workers

            await stack.enter_async_context(ray_workers.join_cluster(config))
            shared = {**environment, **export_run_token()}
            order = await asyncio.to_thread(ray_workers.write_order, config, orders, shared)
            needed_hosts = ray_workers.find_needed_hosts(config, orders.hosted)
            count = await asyncio.to_thread(ray_workers.fit_into_cluster, count, cpus_on_ray, notice)

            async def start(name: str, on_data: Callable[[bytes], None]) -> Worker:
                return await ray_workers.RayWorker.start(
                    name,
                    on_data,
                    order={**order, "timeout_s": timeout_s},
                    needed_hosts=needed_hosts,
                    num_cpus=cpus_on_ray,
                    on_line=partial(logs.line, name),
                    timeout_s=timeout_s,
                )

        pool = await stack.enter_async_context(WorkerPool(start, count or 1, control, notice))
        if versions is not None:
            in_force = stack.enter_context(versions.relay_to(lambda announced: pool.announce(announced.model_dump())))
            if in_force is not None:
                await pool.announce(in_force.model_dump())
        yield pool
