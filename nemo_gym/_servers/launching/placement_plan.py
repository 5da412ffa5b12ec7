# SPDX-License-Identifier: Apache-2.0
"""Plan where each server of a run will run.

In this process, in its own process with its own venv, on nodes of a Ray cluster, or already somewhere else.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from nemo_gym import _make_servers_importable, component_search_roots
from nemo_gym._config.config_paths import join_path
from nemo_gym._config.problems import explain
from nemo_gym._config.server_types import RayPlacementConfig
from nemo_gym._servers.installing.imported_packages import find_bare_neighbor, imports_package
from nemo_gym._servers.installing.venvs import VenvPlan, VenvProgress, VenvSettings, build_all, plan_venv
from nemo_gym._util.nearest import did_you_mean
from nemo_gym._util.search_root_finder import find_server_folder
from nemo_gym.config_types import ServerInstanceConfig
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import GlobalConfigDictParser
from nemo_gym.profiling import profiler_requirements

Placement = Literal["inline", "process", "ray", "external"]
Notice = Callable[[str], None]
_STAGES = {"building": "building an environment: ", "ready": "environment ready: "}
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)


@dataclass(frozen=True)
class ServerPlan:
    """One server and where it will run."""

    name: str
    server_type: str
    impl: str
    folder: Path
    entrypoint: str
    host: str
    port: int
    placement: Placement
    why: str
    """Why it runs there."""
    venv: VenvPlan | None = None
    """The interpreter of a server that this run starts; None for an external one."""
    uses_ray: bool = False
    """Whether its code imports Ray."""
    ray: RayPlacementConfig | None = None
    """How many replicas it has on which nodes, if Ray places it."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def plan_launch(config: DictConfig) -> list[ServerPlan]:
    """Plan where each server of `config` will run."""
    _make_servers_importable()  # the current folder and the extra roots may have changed since the first import
    settings = venv_settings(config)
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    return [_plan_server(config, instance, settings) for instance in instances]


def _plan_server(config: DictConfig, instance: ServerInstanceConfig, settings: VenvSettings) -> ServerPlan:
    (server_type, impls), *_ = config[instance.name].items()
    impl = str(next(iter(impls)))
    block: dict[str, Any] = OmegaConf.to_container(  # type: ignore[assignment]
        instance.get_inner_run_server_config_dict(), resolve=True
    )
    where = {"host": block["host"], "port": block["port"], "entrypoint": block["entrypoint"]}
    if block.get("external") or block.get("placement") == "external":
        return ServerPlan(
            instance.name, str(server_type), impl, Path(), placement="external", why="somebody else runs it", **where
        )
    folder = server_folder(str(server_type), impl)
    entrypoint = folder / block["entrypoint"]
    if not entrypoint.is_file():
        raise ConfigError(
            f"the entrypoint of server {instance.name!r} does not exist: {entrypoint}\n"
            "hint: `entrypoint` is relative to the folder of the implementation"
        )
    venv = plan_venv(folder, settings, of_instance=read_own_requirements(instance.name, block))
    default = config.get("default_placement") or ("process" if config.get("profiling_enabled") else None)
    placement, why = choose_placement(instance.name, block, default, entrypoint, venv)
    return ServerPlan(
        instance.name,
        str(server_type),
        impl,
        folder,
        placement=placement,
        why=why,
        venv=venv,
        uses_ray=imports_package(folder, "ray"),
        ray=read_ray_placement(instance.name, block) if placement == "ray" else None,
        **where,
    )


def server_folder(server_type: str, impl: str) -> Path:
    """Return the folder of a server implementation, found in the search roots."""
    folder = find_server_folder(server_type, impl, component_search_roots())
    if folder is None:
        raise ConfigError(
            f"the config names the server implementation '{server_type}/{impl}', but no search root holds a folder "
            "of that name with code in it.\n"
            "hint: check the name, or add the folder above it to NEMO_GYM_EXTRA_ROOTS"
        )
    return folder


def choose_placement(
    name: str, block: Mapping[str, Any], default: str | None, entrypoint: Path, venv: VenvPlan
) -> tuple[Placement, str]:
    """Return the placement of a server and the reason for it."""
    asked: Any = block.get("placement") or default
    if asked is not None and asked not in PLACEMENTS:
        raise ConfigError(
            f"server {name!r} asks for the placement {asked!r}, which does not exist. "
            f"{did_you_mean(str(asked), list(PLACEMENTS))}"
        )
    needs = _needs_process(block, venv)
    if asked == "inline" and needs is not None:
        raise ConfigError(f"server {name!r} asks for the placement 'inline', but it {needs}.\nhint: use 'process'")
    if asked in ("inline", "process", "ray"):
        return asked, "the config asks for it"
    if needs is None and (neighbor := find_bare_neighbor(entrypoint)):
        # Two servers in one process cannot both have a module `utils`.
        needs = f"imports {neighbor!r}, which lies beside it, by its bare name"
    if needs:
        return ("process", f"it {needs}")
    return ("inline", "this environment has all it needs")


def read_own_requirements(name: str, block: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the packages that the block of a server asks for."""
    asked: Any = block.get("requirements") or []
    if not isinstance(asked, list) or not all(isinstance(text, str) for text in asked):
        raise ConfigError(
            f"server {name!r} has `requirements: {asked!r}`, which is not a list of packages.\n"
            'hint: write `requirements: ["my-env==1.2"]`'
        )
    return tuple(asked)


def read_ray_placement(name: str, block: Mapping[str, Any]) -> RayPlacementConfig:
    """Return what the block of a server says about its replicas."""
    try:
        found = RayPlacementConfig.model_validate(block)
    except ValidationError as error:
        lines = [f"  {join_path(path)} {text}" for path, text in explain(error, dict(block)).items()]
        raise ConfigError(
            f"server {name!r} cannot be placed on a Ray cluster, because its config is not valid:\n"
            + "\n".join(lines)
            + "\nhint: see `num_replicas`, `num_cpus`, `num_gpus`, `resources`, `node_labels` and `max_restarts`"
        ) from error
    if found.num_replicas > 1 and block.get("expose_tools_over_mcp"):
        # They keep to one address, where a session that another replica holds would seem empty.
        raise ConfigError(
            f"server {name!r} asks for {found.num_replicas} replicas and for tools over MCP, whose clients have no "
            "cookie that names a replica.\nhint: use `num_replicas: 1`, with `num_workers` if one process is not enough"
        )
    return found


def _needs_process(block: Mapping[str, Any], venv: VenvPlan) -> str | None:
    if (block.get("num_workers") or 1) > 1:
        return f"has {block['num_workers']} workers"
    if venv.python != Path(sys.executable):
        return f"has an environment of its own: {venv.why}"
    return None


# --- environments -----------------------------------------------------------------------------------------------------


def venv_settings(config: DictConfig) -> VenvSettings:
    """Read from the config how environments are built."""
    from nemo_gym import WORKING_DIR

    venv_dir = Path(config["uv_venv_dir"])
    return VenvSettings(
        cache_dir=Path(config["cache_dir"]),
        uv_cache_dir=Path(config["uv_cache_dir"]),
        uv_venv_dir=None if venv_dir == WORKING_DIR else venv_dir,
        python_version=str(config["python_version"]),
        verbose=bool(config.get("pip_install_verbose")),
        skip_if_present=bool(config.get("skip_venv_if_present")),
        extra_requirements=(
            *(config.get("head_server_deps") or ()),
            *(profiler_requirements() if config.get("profiling_enabled") else ()),
        ),
    )


async def build_environments(config: DictConfig, plans: Sequence[ServerPlan], notice: Notice) -> None:
    """Build every missing environment, identical ones once."""
    # A node of a cluster builds its own.
    await build_venvs(config, [plan.venv for plan in plans if plan.venv and plan.placement != "ray"], notice)


async def build_venvs(config: DictConfig, venvs: Sequence[VenvPlan], notice: Notice) -> None:
    """Build the missing `venvs` and report progress."""

    def tell(progress: VenvProgress) -> None:
        if progress.stage != "output" or config.get("pip_install_verbose"):
            servers = ", ".join(folder.name for folder in progress.servers)
            notice(f"({servers}) {_STAGES.get(progress.stage, '')}{progress.text}")

    await build_all(venvs, venv_settings(config), tell)
