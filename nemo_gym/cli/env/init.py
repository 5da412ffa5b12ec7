# SPDX-License-Identifier: Apache-2.0
"""`gym env init`: create a server, environment or benchmark that works right away.

Files go into the current folder. Existing files are never overwritten.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nemo_gym import component_search_roots
from nemo_gym._authoring.environment_manifest import Profile, Reward
from nemo_gym._authoring.scaffold_plans import (
    BadName,
    Collection,
    Kind,
    NewFile,
    Verifier,
    check_name,
    plan_collection,
    plan_model_server,
    plan_new_verifier,
    plan_resources_server,
    write_missing,
)
from nemo_gym._config.command_flags import Flag
from nemo_gym._config.config_files import find_first, load_file
from nemo_gym._config.overrides import parse_overrides
from nemo_gym._config.server_types import list_server_types
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym._util.nearest import suggest
from nemo_gym.cli import render
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.settings import validate_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig, ConfigError

_SERVERS = "resources_servers"
_MODELS = "responses_api_models"
_EXAMPLE_ROWS = 5


class InitConfig(BaseNeMoGymCLIConfig):
    """Create a resources server or model server to fill in, or an environment or benchmark with a worked example."""

    entrypoint: Annotated[str | None, Flag("--resources-server", key="resources_servers", kind="entrypoint")] = Field(
        default=None, description="Create a resources server of this name; as a key, `resources_servers/<name>`."
    )
    model_server: Annotated[str | None, Flag()] = Field(
        default=None, description="Create a model server of this name, in front of a provider's endpoint."
    )
    environment: Annotated[str | None, Flag()] = Field(default=None, description="Create an environment of this name.")
    benchmark: Annotated[str | None, Flag()] = Field(default=None, description="Create a benchmark of this name.")
    profile: Annotated[Profile, Flag()] = Field(
        default="custom-gym-verifier", description="Which part of it runs in NeMo Gym."
    )
    reuse_verifier: Annotated[str | None, Flag()] = Field(
        default=None, description="Score with this resources server instead of a new one."
    )
    reward_range: Annotated[tuple[float, float], Flag(count=2)] = Field(
        default=(0.0, 1.0), description="Lowest and highest reward."
    )
    higher_is_better: Annotated[
        bool, Flag(), Flag("--lower-is-better", constant="false", help="Less reward is better.")
    ] = Field(default=True, description="More reward is better (the default).")


def init(overrides: list[str]) -> int:
    """Write a scaffold; return 0 even if it already exists, since there is nothing left to do."""
    config = validate_settings(InitConfig, parse_overrides(overrides).values)
    choices = ("entrypoint", "model_server", "environment", "benchmark")
    asked = [name for name in choices if getattr(config, name) is not None]
    if len(asked) != 1:
        raise UsageError(
            "say what to create: one of --resources-server, --model-server, --environment and --benchmark, with a NAME"
            f"{'; given: ' + ', '.join(asked) if asked else ''}"
        )
    try:
        if config.entrypoint is not None:
            return _init_resources_server(config, check_name(_server_name(config.entrypoint)))
        if config.model_server is not None:
            return _init_model_server(config, check_name(config.model_server))
        kind: Kind = "environment" if config.environment is not None else "benchmark"
        return _init_collection(config, kind, check_name(str(getattr(config, kind))))
    except BadName as error:
        raise UsageError(str(error)) from error


def _server_name(entrypoint: str) -> str:
    folder, _, name = entrypoint.strip("/").rpartition("/")
    if folder not in ("", _SERVERS):
        raise UsageError(
            f"entrypoint {entrypoint!r}: only resources servers have a template.\n"
            f"hint: +entrypoint={_SERVERS}/{name or '<name>'}"
        )
    return name


def _init_resources_server(config: InitConfig, name: str) -> int:
    folder = Path(_SERVERS) / name
    if not _write_server(config, folder, plan_resources_server(name), "its tools and its verifier are in app.py"):
        return 0
    _say_next(
        f"gym env test --resources-server {name}",
        f"gym env check {name}",
        f"gym eval run --resources-server {name} --model-type openai_model --model MODEL --model-url URL \\\n"
        f"      --model-api-key KEY --output results/{name}.jsonl",
    )
    return 0


def _init_model_server(config: InitConfig, name: str) -> int:
    folder = Path(_MODELS) / name
    if not _write_server(config, folder, plan_model_server(name), "what the provider speaks is in app.py"):
        return 0
    _say_next(
        f"gym env test {_MODELS}/{name}",
        f"gym eval run --resources-server NAME --model-type {name} --model MODEL --model-url URL \\\n"
        f"      --model-api-key KEY --output results/{name}.jsonl",
    )
    return 0


def _write_server(config: InitConfig, folder: Path, files: list[NewFile], content: str) -> bool:
    """Write a new server and list its files; return False if its folder exists already."""
    given = config.model_fields_set & {"profile", "reuse_verifier", "reward_range", "higher_is_better"}
    if given:
        raise UsageError(f"{', '.join(sorted(given))}: for --environment and --benchmark only")
    if folder.is_dir() and any(folder.iterdir()):
        render.note(f"{folder} already exists; nothing was written.\nhint: choose another name, or move it away")
        return False
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, so no server can be created there")
    for root in component_search_roots():
        if root.resolve() != Path.cwd().resolve() and (other := root / folder).is_dir():
            render.note(f"note: another server has this name: {other}; the order of the roots decides")
    written = write_missing(Path(), files)
    render.data(f"{folder}: {len(written)} files to start from; {content}")
    for path in written:
        render.data(f"  {path.relative_to(folder)}")
    return True


def _init_collection(config: InitConfig, kind: Kind, name: str) -> int:
    reward = validate_settings(Reward, {"range": config.reward_range, "higher_is_better": config.higher_is_better})
    verifier = _find_verifier(config.reuse_verifier) if config.reuse_verifier else plan_new_verifier(name)
    asked = Collection(kind, name, config.profile, reward)
    written = write_missing(Path(), plan_collection(asked, verifier))
    if not written:
        render.note(f"{asked.folder} already exists and is complete; nothing was written.")
        return 0
    render.data(f"{asked.folder}: {len(written)} files, scored by {verifier.name}")
    for path in written:
        render.data(f"  {path}")
    run = f"gym eval run --{kind} {name} --model-type openai_model --output results/{name}.jsonl"
    if kind == "benchmark":
        _say_next(f"gym eval prepare --benchmark {name}", f"{run} --split benchmark")
    else:
        _say_next(f"gym env validate --environment {name}", run)
    return 0


def _find_verifier(name: str) -> Verifier:
    """Return a resources server of the search roots, with the agent and the rows of its config."""
    relative = f"{_SERVERS}/{name}/configs/{name}.yaml"
    roots = component_search_roots()
    path = find_first(relative, roots)
    if path is None:
        there = {found.parents[1].name for root in roots for found in (root / _SERVERS).glob("*/configs/*.yaml")}
        raise UsageError(f"--reuse-verifier {name}: there is no {relative}.{suggest(name, there)}")
    blocks: dict[str, Any] = load_file(path, relative).config  # type: ignore[assignment]  # read like a dict
    instances = {kind: str(key) for key, block in blocks.items() for kind in list_server_types(block)}
    agent = instances.get("responses_api_agents")
    if _SERVERS not in instances or agent is None:
        raise ConfigError(f"{relative} defines no resources server with an agent, so it cannot be reused")
    server = next(iter(blocks[instances[_SERVERS]][_SERVERS].values()))
    example = find_first(f"{_SERVERS}/{name}/data/example.jsonl", roots)
    return Verifier(
        name=name,
        instance=instances[_SERVERS],
        config_path=relative,
        domain=str(server.get("domain") or "other"),
        agent=agent,
        agent_impl=str(next(iter(blocks[agent]["responses_api_agents"]))),
        rows=list(read_rows(example))[:_EXAMPLE_ROWS] if example else [],
    )


def _say_next(*commands: str) -> None:
    render.note("next:")
    for command in commands:
        render.note(f"  {command}")
