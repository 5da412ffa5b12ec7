# SPDX-License-Identifier: Apache-2.0
"""`gym env check`: start a resources server as a run would, and check that it keeps the contract.

Without a name, all resources servers of the search roots are checked, one after the other.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import Field

from nemo_gym import _resolve_under_cwd_or_install, component_search_roots
from nemo_gym._authoring.config_catalog import list_visible_servers
from nemo_gym._authoring.contract_checks import Check, Subject, check, list_tools
from nemo_gym._authoring.environment_manifest import Reward, read_manifest
from nemo_gym._authoring.scripted_play import Answer, Table, Turn, parse_turns
from nemo_gym._config.command_flags import Flag
from nemo_gym._data.create_params import KnownSettings
from nemo_gym._data.dataset_rows import BadRow, Offending, RowChecker
from nemo_gym._servers.installing.venvs import plan_venv
from nemo_gym._servers.launching.placement_plan import server_folder, venv_settings
from nemo_gym._servers.processes.event_loop import run_beside_servers
from nemo_gym._util.jsonl_files import JsonlError, read_rows
from nemo_gym._util.search_root_finder import split_server_folder
from nemo_gym.cli import render
from nemo_gym.cli.default_model import find_models
from nemo_gym.cli.env.config_reports import Kind, find_named_config, put_config_first
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.settings import parse_config, split_off, validate_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig, BaseServerConfig
from nemo_gym.errors import GymError
from nemo_gym.global_config import (
    NEMO_GYM_LOG_DIR_KEY_NAME,
    VERBOSE_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    find_open_port,
    set_global_config_dict,
)
from nemo_gym.server_utils import ServerClient

_MARKS = {"passed": "✓", "failed": "✗", "warned": "!", "skipped": "–"}
_KINDS: tuple[Kind, ...] = ("resources-server", "environment", "benchmark")


class CheckConfig(BaseNeMoGymCLIConfig):
    """Check a resources server against the contract: its rows, verifier, sessions and behavior."""

    config_paths: list[str] | None = Field(default=None, description="Paths to YAML configuration files.")
    component_name: str | None = Field(default=None, description="The server; without it all are checked.")
    as_json: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print the checks as JSON.")


@dataclass(frozen=True)
class Checked:
    """A server and the result of its checks."""

    name: str
    checks: Sequence[Check]
    log: str = ""
    """The last traceback that the server printed."""

    @property
    def is_fine(self) -> bool:
        return all(one.status != "failed" for one in self.checks)


def check_env(overrides: list[str]) -> int:
    """Check; return 1 if a server breaks the contract."""
    own, rest = split_off(overrides, "component_name", "json")
    settings = validate_settings(CheckConfig, own)
    given, _ = split_off(rest, "config_paths")
    if settings.component_name is not None:
        checked = _check_config(rest, find_named_config(settings.component_name, _KINDS))
    elif given:
        checked = _check_config(rest, None)
    else:
        checked = [one for path in _list_configs() for one in _check_config(rest, path)]
    if settings.as_json:
        told = [{"server": one.name, "passed": one.is_fine, **asdict(one)} for one in checked]
        render.json_data([{key: value for key, value in one.items() if key != "name"} for one in told])
    else:
        for one in checked:
            _show(one)
        if len(checked) > 1:
            render.data(f"{sum(one.is_fine for one in checked)} of {len(checked)} servers keep the contract")
    return int(not all(one.is_fine for one in checked))


def _list_configs() -> list[str]:
    servers = list_visible_servers("resources_servers", component_search_roots())
    names = sorted({server.folder.name for server in servers if server.folder.name in server.names})
    if not names:
        raise UsageError("there is no resources server to check here.\nhint: gym env init --resources-server NAME")
    return [f"resources_servers/{name}/configs/{name}.yaml" for name in names]


def _check_config(overrides: list[str], path: str | None) -> list[Checked]:
    """Check every resources server of one config."""
    if path:
        overrides = put_config_first(overrides, path)
    config = parse_config(overrides, needs_model=False)
    shipped = find_resources_servers(config)
    if not shipped:
        raise UsageError(f"{', '.join(config.config_paths)}: there is no resources server to check")
    missing_model = find_stand_in(config)
    return [_check_logged(reduce_config(config, one), one, missing_model) for one in shipped]


def _check_logged(config: DictConfig, shipped: "Shipped", missing_model: str | None) -> Checked:
    """Check one server; its output matters only if something is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        if not (config.get(NEMO_GYM_LOG_DIR_KEY_NAME) or config.get(VERBOSE_KEY_NAME)):
            config[NEMO_GYM_LOG_DIR_KEY_NAME] = folder
        checked = run_beside_servers(_check_server(config, shipped, missing_model), asyncio.new_event_loop)
        log = Path(folder) / f"{shipped.name}.log"
        text = log.read_text(encoding="utf-8") if log.is_file() and not checked.is_fine else ""
    if "Traceback" in text:
        return replace(checked, log=text[text.rindex("Traceback") :].rstrip())
    return checked


async def _check_server(config: DictConfig, shipped: "Shipped", missing_model: str | None) -> Checked:
    """Start one server and run all checks; a server that does not start fails the first one."""
    from nemo_gym._servers.launching.launch import serve_config  # loads the web server

    class FixedConfigParser(GlobalConfigDictParser):  # servers ask their process for the config
        def parse(self, parse_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
            return config

    set_global_config_dict(None, FixedConfigParser)
    checks = list[Check]()
    started = time.monotonic()
    try:
        async with serve_config(config):
            checks.append(Check("starts", "passed", f"ready after {time.monotonic() - started:.1f} s"))
            async for one in check(await shipped.describe(config, missing_model)):
                checks.append(one)
    except GymError as error:
        checks.append(Check("starts" if not checks else "runs", "failed", str(error)))
    return Checked(shipped.name, checks)


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


# --- what is known of a server: its config, its rows, its gold answers, its routes ------------------------------------


_STAND_IN = "dummy_model"
_NO_TOOL = "/no_tool_of_any_server"
"""A route that only a server with tools of any name has."""
_SOLUTIONS_TIMEOUT_S = 300.0


async def _find_routes(server: Table, tools: Sequence[str]) -> dict[str, Any]:
    """Ask the server for each route; read its OpenAPI document where the answers leave doubt."""
    takes_any_tool = await server.takes_posts(_NO_TOOL)
    has_steps = await server.takes_posts("/reset") and await server.takes_posts("/step")
    there = frozenset([tool for tool in tools if await server.takes_posts(f"/{tool}")])
    if len(there) < len(tools) or takes_any_tool or not (has_steps or await server.takes_posts("/verify")):
        document = (await server.get("/openapi.json")).body
        paths = document.get("paths") if isinstance(document, dict) else None
        listed = frozenset(path for path, methods in (paths or {}).items() if "post" in methods)
        has_steps = {"/reset", "/step"} <= listed  # one that takes any call has taken these two as well
        there |= {tool for tool in tools if f"/{tool}" in listed}
        takes_any_tool = takes_any_tool or any("{" in route for route in listed)
    return {"has_steps": has_steps, "tools_there": there, "takes_any_tool": takes_any_tool}


@dataclass(frozen=True)
class Shipped:
    """A resources server of a config, and what ships with it."""

    name: str
    folder: Path
    block: Mapping[str, Any]
    rows_path: Path
    reward: Reward

    async def describe(self, config: DictConfig, missing_model: str | None) -> Subject:
        """Return what the checks need to know of the running server."""
        client = ServerClient(
            head_server_config=BaseServerConfig.model_validate(OmegaConf.to_container(config.head_server)),
            global_config_dict=config,
        )
        rows, problems = _read_rows(self.rows_path)

        async def call(method: str, path: str, body: bytes, cookies: Mapping[str, str]) -> Answer:
            more = {"data": body, "headers": {"content-type": "application/json"}} if method == "POST" else {}
            reply = await client.request(self.name, path, method, cookies=dict(cookies), **more)
            text = (await reply.read()).decode(errors="replace")
            set_cookies = {name: morsel.value for name, morsel in reply.cookies.items()}
            allowed = frozenset(reply.headers.get("allow", "").replace(",", " ").split())
            return Answer(reply.status, text, set_cookies, allowed)

        plain = Table(call)
        routes = await _find_routes(plain, list_tools(rows))
        mode = (await plain.get("/reverify_mode")).body
        return Subject(
            table=Table(call, steps=routes["has_steps"]),
            rows=rows,
            rows_from=str(self.rows_path),
            **routes,
            solutions=await self._ask_for_solutions(config, rows),
            cases=_read_optional_rows(self.folder / "tests" / "verifier_cases.jsonl"),
            rollouts=_read_optional_rows(self.folder / "data" / "example_rollouts.jsonl"),
            reverify_mode=str(mode),
            full_reward=self.reward.full,
            no_reward=self.reward.none,
            needs_model=missing_model if missing_model in find_models(self.block) else None,
            waived=self.block.get("checks_waived") or {},
            row_problems=problems,
        )

    async def _ask_for_solutions(
        self, config: DictConfig, rows: Sequence[Mapping[str, Any]]
    ) -> list[list[Turn]] | None:
        """Return the solutions that the server's own generator gives; None if it gives none."""
        if not rows or not (self.folder / "generate_data.py").is_file():
            return None
        plan = plan_venv(self.folder, venv_settings(config))
        with tempfile.TemporaryDirectory() as place:
            given = Path(place) / "rows.json"
            out = Path(place) / "solutions.json"
            given.write_text(json.dumps(list(rows)), encoding="utf-8")
            _, names = split_server_folder(self.folder)
            module = ".".join((*names, "generate_data"))
            process = await asyncio.create_subprocess_exec(
                *(str(plan.python), "-m", "nemo_gym._authoring.row_solutions", module, str(given), str(out)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                said, _ = await asyncio.wait_for(process.communicate(), _SOLUTIONS_TIMEOUT_S)
            except TimeoutError as error:
                process.kill()
                raise GymError(f"solution() of {module} took more than {_SOLUTIONS_TIMEOUT_S:g} s") from error
            if process.returncode != 0:
                last = "\n".join(said.decode(errors="replace").strip().splitlines()[-5:])
                raise GymError(f"solution() of {module} cannot be asked:\n{last}")
            found = json.loads(out.read_text(encoding="utf-8"))
        return None if found is None else [parse_turns(solution) for solution in found]


def find_resources_servers(config: DictConfig) -> list[Shipped]:
    """Return the resources servers of `config`."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    found = []
    for instance in GlobalConfigDictParser().filter_for_server_instance_configs(config):
        if instance.SERVER_TYPE == "resources_servers":
            impl, block = next(iter(plain[instance.name]["resources_servers"].items()))
            folder = server_folder("resources_servers", str(impl))
            path = _find_example_rows(plain, instance.name) or folder / "data" / "example.jsonl"
            found.append(Shipped(instance.name, folder, block, path, _read_reward(plain.get("config_paths"))))
    return found


def find_stand_in(config: DictConfig) -> str | None:
    """Return the name of the model that stands in for a missing one, if the config names none."""
    instances = GlobalConfigDictParser().filter_for_server_instance_configs(config)
    found = (one for one in instances if _STAND_IN in one.server_type_config_dict.get("responses_api_models", {}))
    return next((one.name for one in found), None)


def reduce_config(config: DictConfig, shipped: Shipped) -> DictConfig:
    """Reduce `config` to what the server needs: itself and the models it calls, each on its own port."""
    prepared = config.copy()
    wanted = {shipped.name, *find_models(shipped.block)}
    taken = list[int]()
    for instance in GlobalConfigDictParser().filter_for_server_instance_configs(config):
        is_stand_in = _STAND_IN in instance.server_type_config_dict[instance.SERVER_TYPE]
        if instance.name not in wanted or is_stand_in:
            del prepared[instance.name]
            continue
        block = next(iter(prepared[instance.name][instance.SERVER_TYPE].values()))
        if block.port < 0:
            block.port = find_open_port(taken)
            taken.append(block.port)
    prepared.head_server.port = find_open_port(taken)
    return prepared


def _find_example_rows(plain: Mapping[str, Any], server: str) -> Path | None:
    """Return the example dataset of an agent that uses `server`."""
    for block in plain.values():
        agents = block.get("responses_api_agents") if isinstance(block, Mapping) else None
        for agent in (agents or {}).values():
            plays_in = (agent.get("resources_server") or {}).get("name")
            for dataset in agent.get("datasets") or ():
                if plays_in == server and dataset.get("type") == "example":
                    return _resolve_under_cwd_or_install(str(dataset["jsonl_fpath"]))
    return None


def _read_reward(config_paths: Sequence[str] | None) -> Reward:
    """Return the reward range from the manifest next to a config file, else 0 to 1."""
    for path in config_paths or ():
        manifest, _ = read_manifest(_resolve_under_cwd_or_install(path).with_name("manifest.yaml"))
        if manifest is not None:
            return manifest.reward
    return Reward()


def _read_rows(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Read the example rows, or say why there are none."""
    if not path.is_file():
        return [], []
    try:
        rows = list(read_rows(path))
    except (JsonlError, OSError) as error:
        return [], [str(error)]
    checker = RowChecker(KnownSettings())
    offending = Offending(path)
    for number, row in enumerate(rows, 1):
        try:
            checker.check(row)
        except BadRow as bad:
            offending.add(number, bad)
    return ([] if offending else rows), offending.describe()


def _read_optional_rows(path: Path) -> list[dict[str, Any]]:
    return list(read_rows(path)) if path.is_file() else []
