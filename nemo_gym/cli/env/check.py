# SPDX-License-Identifier: Apache-2.0
"""`gym env check`: start a resources server as a run would, and see whether it keeps to the contract.

Without a name, all resources servers of the search roots are checked, one after the other.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from pydantic import Field

from nemo_gym import component_search_roots
from nemo_gym._checks.contract import Check, check
from nemo_gym._serving.event_loop import run_beside_servers
from nemo_gym.cli import render
from nemo_gym.cli.env.check_subject import Shipped, StoodIn, find_resources_servers, prepare_config, stand_in_of
from nemo_gym.cli.env.config import Kind, named_config, put_config_first
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.settings import parse_config, split_off, validated
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.errors import GymError
from nemo_gym.global_config import (
    NEMO_GYM_LOG_DIR_KEY_NAME,
    VERBOSE_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    set_global_config_dict,
)

_MARKS = {"passed": "✓", "failed": "✗", "warned": "!", "skipped": "–"}
_OWN_KEYS = ("component_name", "json")
_KINDS: tuple[Kind, ...] = ("resources-server", "environment", "benchmark")


class CheckConfig(BaseNeMoGymCLIConfig):
    """Check a resources server against the contract: its rows, its verifier, its sessions, its manners."""

    config_paths: list[str] | None = Field(default=None, description="Paths to YAML configuration files.")
    component_name: str | None = Field(default=None, description="The server; without it all are checked.")
    as_json: bool = Field(default=False, alias="json", description="Print the checks as JSON.")


@dataclass(frozen=True)
class Checked:
    """A server and how it fared."""

    name: str
    checks: Sequence[Check]
    log: str = ""
    """The last traceback that the server printed."""

    @property
    def is_fine(self) -> bool:
        return all(one.status != "failed" for one in self.checks)


def check_env(overrides: list[str]) -> int:
    """Check; 1 if a promise is broken."""
    own, rest = split_off(overrides, *_OWN_KEYS)
    settings = validated(CheckConfig, own)
    given, _ = split_off(rest, "config_paths")
    if settings.component_name is not None:
        checked = _check_config(rest, named_config(settings.component_name, _KINDS))
    elif given:
        checked = _check_config(rest, None)
    else:
        checked = [one for path in _list_configs() for one in _check_config(rest, path)]
    if settings.as_json:
        render.json_data([_as_json(one) for one in checked])
    else:
        for one in checked:
            _show(one)
        if len(checked) > 1:
            render.data(f"{sum(one.is_fine for one in checked)} of {len(checked)} servers keep to the contract")
    return 0 if all(one.is_fine for one in checked) else 1


def _list_configs() -> list[str]:
    found = {
        f"resources_servers/{folder.parents[1].name}/configs/{folder.name}"
        for root in component_search_roots()
        for folder in (root / "resources_servers").glob("*/configs/*.yaml")
        if folder.stem == folder.parents[1].name
    }
    if not found:
        raise UsageError("there is no resources server to check here.\nhint: gym env init --resources-server NAME")
    return sorted(found)


def _check_config(overrides: list[str], path: str | None) -> list[Checked]:
    """Check every resources server of one config."""
    config = parse_config(put_config_first(overrides, path) if path else overrides, needs_model=False)
    shipped = find_resources_servers(config)
    if not shipped:
        paths = ", ".join(config.config_paths)
        raise UsageError(f"{paths}: no resources server is defined there, so there is nothing to check")
    missing_model = stand_in_of(config)
    return [_check_logged(prepare_config(config, one), one, missing_model) for one in shipped]


def _check_logged(config: DictConfig, shipped: Shipped, missing_model: StoodIn | None) -> Checked:
    """Check one server; what it prints is of interest only where something is wrong."""
    if config.get(NEMO_GYM_LOG_DIR_KEY_NAME) or config.get(VERBOSE_KEY_NAME):
        return run_beside_servers(_check_server(config, shipped, missing_model), asyncio.new_event_loop)
    with tempfile.TemporaryDirectory() as folder:
        config[NEMO_GYM_LOG_DIR_KEY_NAME] = folder
        checked = run_beside_servers(_check_server(config, shipped, missing_model), asyncio.new_event_loop)
        log = Path(folder) / f"{shipped.name}.log"
        text = log.read_text(encoding="utf-8") if log.is_file() and not checked.is_fine else ""
    if "Traceback" in text:
        return replace(checked, log=text[text.rindex("Traceback") :].rstrip())
    return checked


async def _check_server(config: DictConfig, shipped: Shipped, missing_model: StoodIn | None) -> Checked:
    """Start one server and make all checks; a server that does not start fails the first of them."""
    from nemo_gym._app.launch import serve_config  # loads the web server

    set_global_config_dict(None, _wrap_in_parser(config))
    checks = list[Check]()
    loop = asyncio.get_running_loop()
    try:
        started = loop.time()
        async with serve_config(config):
            checks.append(Check("starts", "passed", f"ready after {loop.time() - started:.1f} s"))
            async for one in check(await shipped.subject(config, missing_model)):
                checks.append(one)
    except GymError as error:
        checks.append(Check("starts" if not checks else "runs", "failed", str(error)))
    return Checked(shipped.name, checks)


def _wrap_in_parser(config: DictConfig) -> type[GlobalConfigDictParser]:
    """Return a parser that has done its work already: servers look the config of their process up."""

    class FixedConfigParser(GlobalConfigDictParser):
        def parse(self, parse_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
            return config

    return FixedConfigParser


def _show(checked: Checked) -> None:
    render.data(f"{'✓' if checked.is_fine else '✗'} {checked.name}")
    width = max(len(one.name) for one in checked.checks)
    for one in checked.checks:
        first, *more = one.about.splitlines() or [""]
        render.data(f"  {_MARKS[one.status]} {one.name:{width}}  {first}")
        for line in more:
            render.data(f"    {'':{width}}  {line}")
    if checked.log:
        render.note(f"what {checked.name} printed last:\n{checked.log}")


def _as_json(checked: Checked) -> Mapping[str, Any]:
    checks = [{"name": one.name, "status": one.status, "about": one.about} for one in checked.checks]
    return {"server": checked.name, "passed": checked.is_fine, "checks": checks, "log": checked.log}
