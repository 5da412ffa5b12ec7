# SPDX-License-Identifier: Apache-2.0
"""From a config to running servers: plan where each runs, build the environments, start, watch and stop them.

The head server and the servers that can share this process run in it; each of the others gets its own process, on this
machine or on nodes of a Ray cluster.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlsplit

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from nemo_gym import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, component_search_roots
from nemo_gym._config.config_paths import join_path
from nemo_gym._config.port_reservation import take_reserved
from nemo_gym._config.problems import explain
from nemo_gym._servers.direct_calls import running_apps as registry
from nemo_gym._servers.http import sockets as binding
from nemo_gym._servers.http.admission import AccessRules
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._servers.installing.installers import find_uv
from nemo_gym._servers.launching.placement_plan import (
    Notice,
    ServerPlan,
    build_environments,
    plan_launch,
    server_folder,
)
from nemo_gym._servers.model_endpoints import find_endpoint_urls, wait_for_endpoints
from nemo_gym._servers.policy_versions.announcing import RunVersion
from nemo_gym._servers.process_environment import (
    INSTANCE_NAME_ENV,
    run_files_folder,
    run_token_path,
    share_run_token,
    starting,
)
from nemo_gym._servers.processes import private_run_files as run_files
from nemo_gym._servers.processes.entrypoint import load_server_class
from nemo_gym._servers.processes.server_host import InlineServer, InlineSpec
from nemo_gym._servers.processes.server_logs import route_output
from nemo_gym._servers.processes.server_process import ChildSpec, ServerDied
from nemo_gym._servers.processes.server_supervisor import Launch, Running, supervise
from nemo_gym._servers.ray.cluster import (
    find_cluster_address,
    require_ray,
    require_reachable_cluster,
    run_cluster,
    send_code_by_value,
)
from nemo_gym._servers.ray.launched_servers import ServerList, list_replica_specs
from nemo_gym._util.reachable_addresses import is_loopback
from nemo_gym.config_types import BaseServerConfig, ServerInstanceConfig
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import (
    HEAD_SERVER_KEY_NAME,
    MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME,
    NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME,
    NEMO_GYM_CONFIG_FILE_ENV_VAR_NAME,
    GlobalConfigDictParser,
    get_first_server_config_dict,
)
from nemo_gym.profiling import describe_profiles
from nemo_gym.server_utils import HeadServer, ServerInstanceDisplayConfig, SimpleServer

_DEFAULT_STARTUP_TIMEOUT_S = 600.0


def _ignore(text: str) -> None:
    """Ignore the notice."""


@dataclass(frozen=True)
class Served:
    """Servers that are ready."""

    servers: list[ServerInstanceDisplayConfig]
    running: Running
    policy_version: RunVersion

    async def first_death(self) -> ServerDied:
        """Wait for the first server process that ends unexpectedly."""
        return await self.running.first_death

    @contextmanager
    def call_on_death(self, on_death: Callable[[ServerDied], None]) -> Iterator[None]:
        """Call `on_death` once, with the first server process that ends unexpectedly meanwhile."""

        def tell(task: "asyncio.Task[ServerDied]") -> None:
            if not task.cancelled():
                on_death(task.result())

        self.running.first_death.add_done_callback(tell)
        try:
            yield
        finally:
            self.running.first_death.remove_done_callback(tell)

    @property
    def has_processes(self) -> bool:
        """Whether any server has its own process, which may die."""
        return bool(self.running.pids)

    @property
    def has_lost_one(self) -> bool:
        """Whether a server process has ended unexpectedly."""
        return self.running.first_death.done()


# --- metrics ----------------------------------------------------------------------------------------------------------


def agents_to_ask(config: DictConfig) -> frozenset[str]:
    """Return the agents that may have their own metrics, and must be asked for them.

    Only a server in this process is known to have none.
    """
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    classes = {instance.name: find_inline_class(config, instance) for instance in instances}
    agents = [instance for instance in instances if instance.SERVER_TYPE == "responses_api_agents"]
    return frozenset(agent.name for agent in agents if _may_have_metrics(agent, classes))


def find_inline_class(config: DictConfig, instance: ServerInstanceConfig) -> type[SimpleServer] | None:
    """Return the class of a server that runs in this process."""
    block = instance.get_inner_run_server_config_dict()
    if not registry.is_in_this_process(block["host"], block["port"]):
        return None
    (server_type, impls), *_ = config[instance.name].items()
    folder = server_folder(str(server_type), str(next(iter(impls))))
    return load_server_class(folder, block["entrypoint"], SimpleServer)


def _may_have_metrics(agent: ServerInstanceConfig, classes: Mapping[str, type[SimpleServer] | None]) -> bool:
    from nemo_gym.base_resources_server import SimpleResourcesServer
    from nemo_gym.base_responses_api_agent import SimpleResponsesAPIAgent

    agent_class = classes[agent.name]
    block = agent.get_inner_run_server_config_dict()
    if agent_class is None or block.get("skip_verification"):
        return True
    defined_by = next((cls for cls in agent_class.__mro__ if "aggregate_metrics" in vars(cls)), None)
    if not vars(defined_by).get("_metrics_by_resources_server"):
        return _has_own_metrics(agent_class, SimpleResponsesAPIAgent)
    environment = classes.get(str((block.get("resources_server") or {}).get("name")))
    return environment is None or _has_own_metrics(environment, SimpleResourcesServer)


def _has_own_metrics(cls: type, base: type) -> bool:
    names = ("aggregate_metrics", "compute_metrics", "get_key_metrics", "MEAN_REWARDS_BY")
    return any(getattr(cls, name, None) is not getattr(base, name, None) for name in names)


# --- serving ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serve_config(
    config: DictConfig,
    notice: Notice = _ignore,
    count: Notice = _ignore,
    *,
    models_within_s: float | None = None,
) -> AsyncIterator[Served]:
    """Serve every server of `config`, which must be the config of this process, while the context lasts.

    Wait for model endpoints as the config says, and report the time to `count`. `models_within_s`: they are about to be
    called, so one that does not answer within this many seconds is an error.
    """
    log_dir = config.get("nemo_gym_log_dir")
    access = AccessRules.from_config(config)
    try:
        plans = plan_launch(config)
        if warning := _warn_of_exposure(config, plans, access):
            notice(warning)
        await asyncio.to_thread(require_reachable_cluster, config)
        if models_within_s is not None:  # fail before spending minutes on building environments
            await wait_for_models(config, notice, count, models_within_s)
        await build_environments(config, plans, notice)
        is_cluster_named = find_cluster_address(config) is not None
        async with _join_ray_cluster(config, plans, notice):
            with (
                route_output(Path(log_dir) if log_dir else None) as logs,
                _open_head_server(config) as (head, listening_head),
                share_config(config) as environment,
                _list_servers(plans, head) as server_list,
            ):
                replicas = partial(list_replica_specs, config, plans, server_list, environment, notice)
                timeout_s = startup_timeout_s(config)
                launch = Launch(
                    head=listening_head,
                    inline=[inline_spec(config, plan) for plan in plans if plan.placement == "inline"],
                    children=[child_spec(plan, environment) for plan in plans if plan.placement == "process"],
                    startup_timeout_s=timeout_s,
                    access=access,
                    remote=await asyncio.to_thread(replicas, restart_timeout_s=timeout_s, sends_code=is_cluster_named),
                )
                starting.set()
                async with supervise(launch, logs, notice) as running:
                    starting.clear()
                    servers = server_list.note_ready(running.pids)
                    if models_within_s is None:
                        await running.run_unless_dead(wait_for_models(config, notice, count))
                    yield Served(servers, running, head.policy_version)
        if config.get("profiling_enabled"):
            names = [plan.name for plan in plans if plan.placement != "external"]
            notice(describe_profiles(Path(config["profiling_results_dirpath"]), names))
    finally:
        starting.clear()
        release_ports(config)
        await close_global_aiohttp_client()


@asynccontextmanager
async def _join_ray_cluster(config: DictConfig, plans: Sequence[ServerPlan], notice: Notice) -> AsyncIterator[None]:
    """Join the Ray cluster while the context lasts, if any server needs one."""
    users = [plan for plan in plans if plan.uses_ray or plan.placement == "ray"]
    used_here = any(plan.placement in ("inline", "ray") for plan in users)
    if any(plan.placement == "ray" for plan in users):
        require_ray()
    cluster = run_cluster(config, [plan.name for plan in users], used_here=used_here, notice=notice)
    with ExitStack() as stack:
        # In a thread: joining takes seconds, and in the main thread Ray would take the signals that end a run.
        await asyncio.to_thread(stack.enter_context, cluster)
        try:
            yield
        finally:
            await asyncio.to_thread(stack.close)


def startup_timeout_s(config: DictConfig) -> float:
    """Return how long servers may take to become ready."""
    return float(config.get("server_startup_timeout_seconds") or _DEFAULT_STARTUP_TIMEOUT_S)


def release_ports(config: DictConfig) -> None:
    """Release the ports that were reserved for servers that then were not started."""
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    blocks = (instance.get_inner_run_server_config_dict() for instance in instances)
    for block in (config[HEAD_SERVER_KEY_NAME], *blocks):
        sock = take_reserved(block["host"], block["port"])
        if sock is not None:
            sock.close()


async def wait_for_models(config: DictConfig, notice: Notice, count: Notice, within_s: float | None = None) -> None:
    """Wait for model endpoints, see `serve_config`; with a readiness timeout of 0, do not wait."""
    timeout_s = float(config.get(MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME) or 0)
    if timeout_s <= 0:
        return
    plain: Any = OmegaConf.to_container(config, resolve=True)
    urls = find_endpoint_urls(plain)
    if within_s is None:
        await wait_for_endpoints(urls, timeout_s, notice, count)
        return
    # One server of the config may be the endpoint of another, and does not run yet.
    servers = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    ports = {server.get_inner_run_server_config_dict().get("port") for server in servers}
    elsewhere = {url: key for url, key in urls.items() if urlsplit(url).port not in ports}
    await wait_for_endpoints(elsewhere, within_s, notice, count, must_answer=True)


def inline_spec(config: DictConfig, plan: ServerPlan) -> InlineSpec:
    """Return how to build a server in this process."""

    def build() -> Any:
        cls = load_server_class(plan.folder, plan.entrypoint, SimpleServer)
        send_code_by_value(sys.modules[cls.__module__])
        try:
            server = cls.from_global_config(config, plan.name)
        except ValidationError as error:
            if error.title != getattr(cls.model_fields["config"].annotation, "__name__", None):
                raise  # not about its config: a mistake in the server's own code
            block: Any = OmegaConf.to_container(get_first_server_config_dict(config, plan.name), resolve=True)
            lines = [
                f"  {join_path(path)} {text}" for path, text in explain(error, {**block, "name": plan.name}).items()
            ]
            raise ConfigError(f"the config of server {plan.name!r} is not valid:\n" + "\n".join(lines)) from error
        return server.build_complete_app(config)

    return InlineSpec(plan.name, plan.host, plan.port, build)


def _warn_of_exposure(config: DictConfig, plans: Sequence[ServerPlan], access: AccessRules) -> str | None:
    """Return a warning about servers that other machines can reach; None if there are none."""
    hosts = {HEAD_SERVER_KEY_NAME: str(config[HEAD_SERVER_KEY_NAME]["host"])}
    hosts |= {plan.name: plan.host for plan in plans if plan.placement != "external"}
    exposed = [name for name, host in hosts.items() if not is_loopback(host)]
    if not exposed or access.token:
        return None
    return (
        f"anyone who can reach this machine can call {', '.join(exposed)} without a password: to spend your model's "
        "API key, run the code of tools, and read tasks and answers.\n"
        "hint: `default_host: 127.0.0.1` keeps others out; `access_token: SECRET` in env.yaml admits only its holders"
    )


@contextmanager
def _open_head_server(config: DictConfig) -> Iterator[tuple[HeadServer, InlineServer]]:
    """Yield the head server and its app, with a run token while the context lasts."""
    where = BaseServerConfig.model_validate(OmegaConf.to_container(config[HEAD_SERVER_KEY_NAME], resolve=True))
    head = HeadServer(config=where)
    # Bind before writing the token: a process that already has the port has a token too, which must stay.
    with binding.bind(where.host, where.port, HEAD_SERVER_KEY_NAME) as sock:
        try:
            app = head.setup_webserver()
            with share_run_token(where):
                yield head, InlineServer(HEAD_SERVER_KEY_NAME, where.host, where.port, app, sock)
        finally:
            run_token_path(where).unlink(missing_ok=True)


@contextmanager
def _list_servers(plans: Sequence[ServerPlan], head: HeadServer) -> Iterator[ServerList]:
    """Yield the list of servers that `head` serves, which starts empty."""
    servers = ServerList(plans, head.config, head.set_server_instances)
    try:
        yield servers
    finally:
        servers.forget()


@contextmanager
def share_config(config: DictConfig) -> Iterator[dict[str, str]]:
    """Yield the environment of server processes, with the config in a file that only this user can read."""
    with run_files.private_file(run_files_folder(), OmegaConf.to_yaml(config)) as path:
        inherited = {key: value for key, value in os.environ.items() if key != NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME}
        yield {
            **inherited,
            NEMO_GYM_CONFIG_FILE_ENV_VAR_NAME: str(path),
            # A server process runs in its own folder, so our current folder has to be named.
            NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME: os.pathsep.join(map(str, component_search_roots())),
            "UV_CACHE_DIR": str(config["uv_cache_dir"]),
        }


def child_spec(plan: ServerPlan, environment: dict[str, str]) -> ChildSpec:
    """Return how to start a server in its own process."""
    assert plan.venv is not None
    environment = {**environment, **_activate(plan.venv.python, environment.get("PATH", os.defpath))}
    python_path = os.pathsep.join(filter(None, [str(plan.folder), environment.get("PYTHONPATH")]))
    return ChildSpec(
        name=plan.name,
        python=plan.venv.python,
        folder=plan.folder,
        entrypoint=plan.entrypoint,
        host=plan.host,
        port=plan.port,
        environment={**environment, INSTANCE_NAME_ENV: plan.name, "PYTHONPATH": python_path},
    )


def _activate(python: Path, path: str) -> dict[str, str]:
    """Return what activating the environment of `python` sets: its scripts are found first, and uv after all else."""
    uv = [] if which("uv", path=path) else [str(find_uv().parent)]
    scripts = python.parent
    root = {}
    if (scripts.parent / "pyvenv.cfg").is_file():
        root = {"VIRTUAL_ENV": str(scripts.parent)}
    return {**root, "PATH": os.pathsep.join([str(scripts), path, *uv])}
