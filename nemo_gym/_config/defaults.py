# SPDX-License-Identifier: Apache-2.0
"""Fill in what a config leaves open: hosts, ports, the head server, folders, versions.

Values that the user gave are kept. What depends on the machine is passed in.
"""

import importlib.metadata
import platform
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nemo_gym._config.config_paths import KeyPath
from nemo_gym._config.problems import Problems
from nemo_gym._config.reserved_keys import (
    DEFAULT_HEAD_SERVER_PORT,
    DEFAULT_HOST,
    DEFAULT_PORT_RANGE_HIGH,
    DEFAULT_PORT_RANGE_LOW,
)
from nemo_gym._config.server_types import ServerInstance
from nemo_gym.errors import ConfigError

PORT_TRIES = 50
MODEL_READINESS_TIMEOUT_S = 600
_SETTINGS: dict[str, tuple[type, str]] = {
    "cache_dir": (str, "a path"),
    "results_dir": (str, "a path"),
    "port_range_low": (int, "a port number"),
    "port_range_high": (int, "a port number"),
    "allow_openai_version_skew": (bool, "true or false"),
    "access_token": (str, "text, in quotes"),
    "allow_other_users": (bool, "true or false"),
    "allowed_hosts": (list, "a list of host names"),
    "secret_keys": (list, "a list of keys"),
    "head_server": (dict, "a mapping with `host` and `port`"),
}
OFFLINE_PORT = -1


@dataclass(frozen=True)
class Machine:
    """What the defaults depend on. Without `own_ip` and `open_port`, a config is resolved but not made runnable."""

    cache_dir: Path
    results_dir: Path
    working_dir: Path
    own_ip: Callable[[], str] | None = None
    open_port: Callable[[str, int, int, Collection[int], int], int] | None = None


def check_settings(values: Mapping[str, Any], holes: Collection[KeyPath]) -> Problems:
    """Report settings of the wrong type, before anything uses them."""
    problems = Problems()
    for key, (kinds, wanted) in _SETTINGS.items():
        value = values.get(key)
        if value is None or (key,) in holes:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool) or value == "":
            problems.add(ConfigError, f"{key!r} must be {wanted}, but it is {value!r}")
    head = values.get("head_server")
    port = head.get("port") if isinstance(head, dict) else None
    if port is not None and ("head_server", "port") not in holes and not str(port).isdecimal():
        problems.add(ConfigError, f"'head_server.port' must be a port number, but it is {port!r}")
    return problems


def fill_defaults(config: DictConfig, instances: Collection[ServerInstance], machine: Machine) -> None:
    """Complete `config` in place."""
    _fill_folders(config, machine)
    _set_default(config, "python_version", platform.python_version())
    if "head_server_deps" not in config:
        config["head_server_deps"] = running_head_server_deps()
    _set_default(config, "use_absolute_ip", False)
    if config.use_absolute_ip and machine.own_ip:
        config["default_host"] = machine.own_ip()
    _fill_addresses(config, [instance.get_inner_run_server_config_dict() for instance in instances], machine)
    for key in ("skip_verification", "skip_verification_reward"):
        if config.get(key) is not None:
            for instance in instances:
                if instance.SERVER_TYPE == "responses_api_agents":
                    _set_default(instance.get_inner_run_server_config_dict(), key, config[key])
    for key, value in (
        ("skip_venv_if_present", False),
        ("dry_run", False),
        ("model_endpoint_readiness_timeout_seconds", MODEL_READINESS_TIMEOUT_S),
        ("allow_openai_version_skew", False),
    ):
        _set_default(config, key, value)


def _fill_folders(config: DictConfig, machine: Machine) -> None:
    _set_default(config, "cache_dir", str(machine.cache_dir))
    _set_default(config, "results_dir", str(machine.results_dir))
    if config.get("profiling_enabled"):
        _set_default(config, "profiling_results_dirpath", str(Path(config.results_dir) / "profiling"))
    # Each server has a working folder of its own, so a relative path would mean another place to each.
    for key in ("cache_dir", "results_dir", "profiling_results_dirpath"):
        if config.get(key) is not None:
            config[key] = str(Path(config[key]).expanduser().absolute())
    _set_default(config, "uv_cache_dir", str(Path(config.cache_dir) / "uv"))
    _set_default(config, "uv_venv_dir", str(machine.working_dir))


def running_head_server_deps() -> list[str]:
    """Return the requirements that every environment gets by default, in the versions installed here."""
    requirements = []
    for package, requirement in (("ray", "ray[default]"), ("openai", "openai")):
        with suppress(importlib.metadata.PackageNotFoundError):
            requirements.append(f"{requirement}=={importlib.metadata.version(package)}")
    return requirements


def _fill_addresses(config: DictConfig, servers: Collection[DictConfig], machine: Machine) -> None:
    _set_default(config, "port_range_low", DEFAULT_PORT_RANGE_LOW)
    _set_default(config, "port_range_high", DEFAULT_PORT_RANGE_HIGH)
    _set_default(config, "head_server", {})
    for server in (config.head_server, *servers):
        _set_default(server, "host", config.get("default_host") or DEFAULT_HOST)
    _set_default(config.head_server, "port", DEFAULT_HEAD_SERVER_PORT)
    given = [int(server.port) for server in (config.head_server, *servers) if server.get("port") is not None]
    taken = list(dict.fromkeys([*(config.get("disallowed_ports") or ()), *given]))
    for server in servers:
        if server.get("port") is None:
            server["port"] = OFFLINE_PORT
            if machine.open_port:
                server["port"] = machine.open_port(
                    server.host, config.port_range_low, config.port_range_high, taken, PORT_TRIES
                )
                taken.append(server.port)
    config["disallowed_ports"] = taken


def _set_default(block: DictConfig, key: str, value: Any) -> None:
    if block.get(key) is None:
        block[key] = value
