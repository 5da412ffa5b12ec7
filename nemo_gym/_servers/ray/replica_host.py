# SPDX-License-Identifier: Apache-2.0
"""Run one replica of a server on this node of a Ray cluster, for the actor that started this process.

    python -m nemo_gym._servers.ray.replica_host

reads what to do from its standard input, builds the environment of the server unless the node has it, finds a port,
starts the server like any other process and tells the actor where it is. It ends with the server or the actor.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym import WORKING_DIR
from nemo_gym._config.port_reservation import reserve_port, take_reserved
from nemo_gym._servers.installing.venvs import plan_venv
from nemo_gym._servers.launching.launch import child_spec, share_config
from nemo_gym._servers.launching.placement_plan import (
    ServerPlan,
    build_environments,
    read_own_requirements,
    server_folder,
    venv_settings,
)
from nemo_gym._servers.process_environment import RUN_SECRET_ENV, RUN_TOKEN_ENV, find_machine_id
from nemo_gym._servers.processes.entrypoint import end_with_parent
from nemo_gym._servers.processes.server_process import ServerProcess
from nemo_gym._servers.ray.cluster import RAY_ADDRESS_ENV, RAY_HEAD_NODE_ADDRESS_KEY_NAME
from nemo_gym._servers.ray.replica_actor import find_node_cache
from nemo_gym._servers.ray.replicas import REPLICA_ENV
from nemo_gym._util.reachable_addresses import is_loopback, reachable_host
from nemo_gym.errors import ConfigError, GymError
from nemo_gym.global_config import HEAD_SERVER_KEY_NAME, get_first_server_config_dict

_EVERY_ADDRESS = ("", "0.0.0.0", "::")
_PORT_TRIES = 200
_HEAD_TIMEOUT_S = 20.0


def main() -> int:
    """Run the replica that the first line of the standard input describes."""
    task = json.loads(sys.stdin.buffer.readline())
    end_with_parent(sys.stdin.fileno())
    facts = os.fdopen(task["facts_fd"], "w", buffering=1)

    def tell(**values: Any) -> None:
        facts.write(json.dumps(values) + "\n")

    try:
        return asyncio.run(_run(task, tell))
    except GymError as error:
        tell(ended=f"could not be started on node {task['node']}: {error}")
        return 1


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _run(task: dict[str, Any], tell: Any) -> int:
    """Serve until the server ends or this process is told to end."""
    config = OmegaConf.create(task["config"])
    assert isinstance(config, DictConfig)
    os.environ |= {RUN_SECRET_ENV: task["token"], RUN_TOKEN_ENV: task["token"], REPLICA_ENV: task["replica_id"]}
    if address := config.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME):
        os.environ[RAY_ADDRESS_ENV] = str(address)
    if not task["is_shared"]:
        _require_no_capture(config, task)
        config["cache_dir"] = str(find_node_cache())
        config["uv_cache_dir"] = str(find_node_cache() / "uv")
        config["uv_venv_dir"] = str(WORKING_DIR)
    is_same_machine = find_machine_id() == task["machine"]
    _require_reachable_launcher(config, task, is_same_machine)
    block = get_first_server_config_dict(config, task["server"])
    sock = _bind(config, block, task["node"], is_same_machine)
    plan = await _provide_environment(config, task)
    with share_config(config) as environment:
        child = await ServerProcess.start(child_spec(plan, environment), sock, _print_line)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        death = asyncio.create_task(child.wait_for_death())
        stopped = asyncio.create_task(stop.wait())
        ready = asyncio.create_task(child.ready())
        try:
            await asyncio.wait({death, stopped, ready}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                tell(host=reachable_host(plan.host), port=plan.port, pid=child.pid)
                await asyncio.wait({death, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if death.done():
                tell(ended=death.result().how)
            return 1 if death.done() else 0
        finally:
            for waiting in (death, stopped, ready):
                waiting.cancel()
            await child.stop()


def _require_reachable_launcher(config: DictConfig, task: dict[str, Any], is_same_machine: bool) -> None:
    """Raise unless this node can reach what the launching machine serves."""
    hosts = {HEAD_SERVER_KEY_NAME: str(config[HEAD_SERVER_KEY_NAME]["host"]), **task["launcher_hosts"]}
    closed = [f"{name} ({host})" for name, host in hosts.items() if is_loopback(host) or host in _EVERY_ADDRESS]
    hint = (
        f"hint: `++default_host={task['launcher_address']}`, or `++use_absolute_ip=true`, lets them listen where nodes "
        "can reach them"
    )
    if closed and not is_same_machine:
        raise ConfigError(f"servers of the launching machine cannot be reached from here: {', '.join(closed)}.\n{hint}")
    where = config[HEAD_SERVER_KEY_NAME]
    try:
        urllib.request.urlopen(f"http://{where['host']}:{where['port']}/", timeout=_HEAD_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        pass  # it answers
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(
            f"the head server at {where['host']}:{where['port']} cannot be reached from here: {reason}.\n{hint}"
        ) from error


def _require_no_capture(config: DictConfig, task: dict[str, Any]) -> None:
    """Raise if model calls would be captured in files that the launching machine never sees."""
    keys = [key for key in ("observability_enabled", "token_id_capture") if config.get(key)]
    if keys and task["server_type"] == "responses_api_models":
        raise ConfigError(
            f"calls to model server {task['server']!r} are to be captured in files ({', '.join(keys)}), and this node "
            "shares no disk with the launching machine.\n"
            "hint: keep the model server there with `placement: process`, or give the nodes a shared disk"
        )


def _bind(config: DictConfig, block: DictConfig, node: str, is_same_machine: bool) -> socket.socket:
    """Bind a port of this node for the server, and write it into its block of the config."""
    given = str(block["host"])
    host = given if is_same_machine or given in _EVERY_ADDRESS else node
    port = reserve_port(host, config["port_range_low"], config["port_range_high"], (), _PORT_TRIES)
    sock = take_reserved(host, port)
    assert sock is not None
    block["host"] = host
    block["port"] = port
    return sock


async def _provide_environment(config: DictConfig, task: dict[str, Any]) -> ServerPlan:
    """Return where the server's code and Python are on this node, built if needed."""
    block = get_first_server_config_dict(config, task["server"])
    plain_block: Any = OmegaConf.to_container(block, resolve=True)
    folder = server_folder(task["server_type"], task["impl"])
    plan = ServerPlan(
        name=task["server"],
        server_type=task["server_type"],
        impl=task["impl"],
        folder=folder,
        entrypoint=block["entrypoint"],
        host=block["host"],
        port=block["port"],
        placement="process",
        why="Ray placed it here",
        venv=plan_venv(
            Path(folder), venv_settings(config), of_instance=read_own_requirements(task["server"], plain_block)
        ),
    )
    await build_environments(config, [plan], _print_line)
    return plan


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
