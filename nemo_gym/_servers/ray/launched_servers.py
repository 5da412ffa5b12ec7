# SPDX-License-Identifier: Apache-2.0
"""The servers of a launch that Ray places: the specs of their replicas, and the list by which they are found."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym import component_search_roots
from nemo_gym._servers.installing.installers import find_uv
from nemo_gym._servers.launching.placement_plan import Notice, ServerPlan
from nemo_gym._servers.process_environment import find_machine_id, run_token_path
from nemo_gym._servers.processes import private_run_files as run_files
from nemo_gym._servers.ray.replica_calls import find_address_book, forget_address_book
from nemo_gym._servers.ray.replica_placement import NodeCode, ReplicaPlace, ReplicaSpec, describe_code, pack_code
from nemo_gym._util.reachable_addresses import reachable_host, reachable_url
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerInstanceDisplayConfig


class ServerList:
    """Which servers run where. The head server serves it, and it is updated when a replica moves."""

    def __init__(
        self, plans: Sequence[ServerPlan], head: BaseServerConfig, publish: Callable[[list[Any]], None]
    ) -> None:
        self._plans = plans
        self._head = head
        self._publish = publish
        self._pids: Mapping[str, int] = {}
        self._places: dict[tuple[str, int], tuple[ReplicaPlace, float]] = {}
        self._started_at = time.time()

    def note_ready(self, pids: Mapping[str, int]) -> list[ServerInstanceDisplayConfig]:
        """Publish that all servers are ready, and return them."""
        self._pids = pids
        self._started_at = time.time()
        return self._renew()

    def note_place(self, spec: ReplicaSpec, place: ReplicaPlace | None) -> None:
        """Publish that a replica runs at `place`, or no longer runs."""
        if place is None:
            self._places.pop((spec.server, spec.number), None)
        else:
            self._places[spec.server, spec.number] = place, time.time()
        self._renew()

    def has_replica(self, server: str) -> bool:
        """Return whether any replica of `server` runs."""
        return any(name == server for name, _ in self._places)

    def forget(self) -> None:
        """Forget the replicas at the end of the run."""
        forget_address_book(self._head)

    def _renew(self) -> list[ServerInstanceDisplayConfig]:
        servers = [server for plan in self._plans for server in self._describe(plan)]
        listed = [
            server.model_dump(mode="json", exclude={"node", "replica"} - server.model_fields_set) for server in servers
        ]
        self._publish(listed)
        if any(plan.ray is not None for plan in self._plans):
            find_address_book(self._head).note_instances(listed)
        return servers

    def _describe(self, plan: ServerPlan) -> list[ServerInstanceDisplayConfig]:
        common: dict[str, Any] = {
            "config_path": plan.name,
            "dir_path": plan.folder,
            "entrypoint": plan.entrypoint,
            "name": plan.impl,
            "process_name": plan.name,
            "server_type": plan.server_type,
        }
        if plan.ray is None:
            if plan.placement == "external":
                pid = None
            else:
                pid = self._pids.get(plan.name, os.getpid())
            where = {"host": plan.host, "port": plan.port, "url": plan.url, "pid": pid, "start_time": self._started_at}
            return [ServerInstanceDisplayConfig(**common, **where)]
        numbers = range(plan.ray.num_replicas)
        found = [self._places[plan.name, number] for number in numbers if (plan.name, number) in self._places]
        return [
            ServerInstanceDisplayConfig(
                **common,
                host=place.host,
                port=place.port,
                url=reachable_url(place.host, place.port),
                pid=place.pid,
                node=place.node,
                replica=place.replica_id,
                start_time=since,
            )
            for place, since in found
        ]


def list_replica_specs(
    config: DictConfig,
    plans: Sequence[ServerPlan],
    servers: ServerList,
    environment: Mapping[str, str],
    notice: Notice,
    *,
    restart_timeout_s: float,
    sends_code: bool,
) -> list[ReplicaSpec]:
    """Return the replicas for Ray to place. `sends_code`: nodes may be other machines, without our files.

    Sending code takes a moment. The Ray cluster must have been joined.
    """
    placed = [plan for plan in plans if plan.ray is not None]
    if not placed:
        return []
    where = BaseServerConfig.model_validate(OmegaConf.to_container(config["head_server"], resolve=True))
    common = {
        "config": OmegaConf.to_yaml(config),
        "token": run_files.read_token(run_token_path(where)),
        "machine": find_machine_id(),
        "launcher_address": _find_own_address(),
        "launcher_hosts": {plan.name: plan.host for plan in plans if plan.placement in ("inline", "process")},
    }
    code = _provide_code(sends_code)
    return [
        ReplicaSpec(
            server=plan.name,
            number=number,
            count=plan.ray.num_replicas,
            options=plan.ray,
            task={**common, "server": plan.name, "server_type": plan.server_type, "impl": plan.impl},
            environment=environment,
            code=code,
            restart_timeout_s=restart_timeout_s,
            others_serve=partial(servers.has_replica, plan.name),
            on_change=servers.note_place,
            notice=notice,
        )
        for plan in placed
        if plan.ray is not None
        for number in range(plan.ray.num_replicas)
    ]


def _find_own_address() -> str:
    """Return the address by which nodes of the cluster know this machine."""
    ray: Any = sys.modules.get("ray")
    if ray and ray.is_initialized():
        return str(ray.util.get_node_ip_address())
    return reachable_host("0.0.0.0")


def _provide_code(sends_code: bool) -> NodeCode:
    roots = [Path(root).absolute() for root in component_search_roots()]
    description = describe_code(sys.executable, roots)
    if not sends_code:
        return NodeCode(description)
    import ray

    return NodeCode(description, (ray.put(pack_code(roots)),), (ray.put(Path(find_uv()).read_bytes()),))
