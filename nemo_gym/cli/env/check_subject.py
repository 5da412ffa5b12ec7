# SPDX-License-Identifier: Apache-2.0
"""What `gym env check` needs to know of a resources server: its config, its rows, its gold answers, its routes."""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._app.plan import server_folder, venv_settings
from nemo_gym._checks.contract import Subject, tools_of
from nemo_gym._checks.play import Answer, Table, Turn
from nemo_gym._checks.replies import as_turns, routes_of, row_problem
from nemo_gym._scaffold.manifest import Reward, read_manifest
from nemo_gym._serving.venvs import plan_venv
from nemo_gym._util.jsonl import JsonlError, read_rows
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.errors import GymError
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig, find_open_port
from nemo_gym.server_utils import ServerClient

ANY_MODEL = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
_STAND_IN = "dummy_model"
_NO_TOOL = "/no_tool_of_any_server"
"""Where only a server that takes calls of any name has a route."""
_SOLUTIONS_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class StoodIn:
    """A model server that the config lacks."""

    name: str


class _Routes(NamedTuple):
    has_steps: bool
    tools_there: frozenset[str]
    takes_any_tool: bool


async def _find_routes(server: Table, tools: Sequence[str]) -> _Routes:
    """Ask the server for each route; look into its OpenAPI document where the answers leave a doubt."""
    takes_any_tool = await server.takes_posts(_NO_TOOL)
    has_steps = await server.takes_posts("/reset") and await server.takes_posts("/step")
    there = frozenset([tool for tool in tools if await server.takes_posts(f"/{tool}")])
    if len(there) == len(tools) and not takes_any_tool and (has_steps or await server.takes_posts("/verify")):
        return _Routes(has_steps, there, takes_any_tool)
    listed = routes_of(await server.get("/openapi.json"))
    there |= {tool for tool in tools if f"/{tool}" in listed}
    return _Routes({"/reset", "/step"} <= listed, there, takes_any_tool or any("{" in route for route in listed))


@dataclass(frozen=True)
class Shipped:
    """A resources server of a config, and what comes with it."""

    name: str
    impl: str
    folder: Path
    block: Mapping[str, Any]
    rows_path: Path
    reward: Reward

    async def subject(self, config: DictConfig, missing_model: StoodIn | None) -> Subject:
        """Describe the running server as something to be checked."""
        client = ServerClient(
            head_server_config=BaseServerConfig.model_validate(OmegaConf.to_container(config.head_server)),
            global_config_dict=config,
        )
        rows, problems = _read_rows(self.rows_path)
        plain = Table(self._make_caller(client))
        routes = await _find_routes(plain, tools_of(rows))
        mode = (await plain.get("/reverify_mode")).body
        return Subject(
            table=Table(self._make_caller(client), steps=routes.has_steps),
            rows=rows,
            rows_from=str(self.rows_path),
            has_steps=routes.has_steps,
            tools_there=routes.tools_there,
            takes_any_tool=routes.takes_any_tool,
            solutions=await self._ask_for_solutions(config, rows),
            cases=_read_optional_rows(self.folder / "tests" / "verifier_cases.jsonl"),
            rollouts=_read_optional_rows(self.folder / "data" / "example_rollouts.jsonl"),
            reverify_mode=str(mode),
            full_reward=self.reward.full,
            no_reward=self.reward.none,
            needs_model=missing_model.name if missing_model and missing_model.name in models_of(self.block) else None,
            waived=self.block.get("checks_waived") or {},
            row_problems=problems,
        )

    def _make_caller(self, client: ServerClient) -> Any:
        async def call(method: str, path: str, body: bytes, cookies: Mapping[str, str]) -> Answer:
            more = {"data": body, "headers": {"content-type": "application/json"}} if method == "POST" else {}
            reply = await client.request(self.name, path, method, cookies=dict(cookies), **more)
            text = (await reply.read()).decode(errors="replace")
            set_cookies = {name: morsel.value for name, morsel in reply.cookies.items()}
            allowed = frozenset(reply.headers.get("allow", "").replace(",", " ").split())
            return Answer(reply.status, text, set_cookies, allowed)

        return call

    async def _ask_for_solutions(
        self, config: DictConfig, rows: Sequence[Mapping[str, Any]]
    ) -> list[list[Turn]] | None:
        """Return what the server's own generator says that a model should do; None if it says nothing."""
        if not rows or not (self.folder / "generate_data.py").is_file():
            return None
        plan = plan_venv(self.folder, venv_settings(config))
        with tempfile.TemporaryDirectory() as place:
            given, out = Path(place) / "rows.json", Path(place) / "solutions.json"
            given.write_text(json.dumps(list(rows)), encoding="utf-8")
            module = f"{self.folder.parent.name}.{self.folder.name}.generate_data"
            process = await asyncio.create_subprocess_exec(
                *(str(plan.python), "-m", "nemo_gym._checks.solutions", module, str(given), str(out)),
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
        return None if found is None else [as_turns(solution) for solution in found]


def find_resources_servers(config: DictConfig) -> list[Shipped]:
    """Return the resources servers of `config`."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    found = []
    for instance in GlobalConfigDictParser().filter_for_server_instance_configs(config):
        if instance.SERVER_TYPE == "resources_servers":
            impl, block = next(iter(plain[instance.name]["resources_servers"].items()))
            folder = server_folder("resources_servers", str(impl))
            path = _find_example_rows(plain, instance.name) or folder / "data" / "example.jsonl"
            found.append(
                Shipped(instance.name, str(impl), folder, block, path, _read_reward(plain.get("config_paths")))
            )
    return found


def stand_in_of(config: DictConfig) -> StoodIn | None:
    """Return the model that stands in for a missing one, if the config names none."""
    for instance in GlobalConfigDictParser().filter_for_server_instance_configs(config):
        if _STAND_IN in instance.server_type_config_dict.get("responses_api_models", {}):
            return StoodIn(instance.name)
    return None


def prepare_config(config: DictConfig, shipped: Shipped) -> DictConfig:
    """Reduce `config` to what the server needs: itself and the models it asks, each with a port of its own."""
    prepared = config.copy()
    wanted = {shipped.name, *models_of(shipped.block)}
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


def models_of(block: Any) -> set[str]:
    """Return the model servers that a block refers to, at any depth."""
    return set(_references(block))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if value.get("type") == "responses_api_models" and isinstance(value.get("name"), str):
            yield value["name"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _find_example_rows(plain: Mapping[str, Any], server: str) -> Path | None:
    """Return the example dataset of an agent that plays in `server`."""
    for block in plain.values():
        agents = block.get("responses_api_agents") if isinstance(block, Mapping) else None
        for agent in (agents or {}).values():
            reference = agent.get("resources_server") or {}
            for dataset in agent.get("datasets") or () if reference.get("name") == server else ():
                if dataset.get("type") == "example":
                    return _resolve_under_cwd_or_install(str(dataset["jsonl_fpath"]))
    return None


def _read_reward(config_paths: Sequence[str] | None) -> Reward:
    """Return what rewards there are, by the manifest beside a config file, else from 0 to 1."""
    for path in config_paths or ():
        manifest_path = _resolve_under_cwd_or_install(path).with_name("manifest.yaml")
        if manifest_path.is_file():
            manifest, _ = read_manifest(manifest_path)
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
    problems = [f"{path}:{number}: {text}" for number, row in enumerate(rows, 1) if (text := row_problem(row))]
    return ([] if problems else rows), problems


def _read_optional_rows(path: Path) -> list[dict[str, Any]]:
    return list(read_rows(path)) if path.is_file() else []
