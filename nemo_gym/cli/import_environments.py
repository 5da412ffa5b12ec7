# SPDX-License-Identifier: Apache-2.0
"""`gym import SYSTEM:ID`: write a config and a dataset that let `gym eval run` play another system's environment.

The rows come from the catalog of the system's adapter, run in the virtual environment of its server. The config is
that of the adapter's folder, plus these rows and anything else the environment needs. `gym list environments --from
SYSTEM` uses the same catalog.
"""

import asyncio
import json
import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import orjson
import yaml
from omegaconf import DictConfig, OmegaConf
from pydantic import Field, PositiveInt

from nemo_gym._authoring.adapter_catalog import Catalog, CatalogRefusal, ImportedRows
from nemo_gym._authoring.foreign_systems import SYSTEMS, System
from nemo_gym._config.command_flags import Flag
from nemo_gym._config.config_files import load_file
from nemo_gym._servers.installing.venvs import VenvBuildError, plan_venv
from nemo_gym._servers.launching.placement_plan import build_venvs, server_folder, venv_settings
from nemo_gym._util.atomic_files import write_atomically
from nemo_gym._util.known_secrets import MASK
from nemo_gym._util.nearest import did_you_mean
from nemo_gym._util.secret_names import is_secret_key
from nemo_gym.cli import render
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.main import program_name
from nemo_gym.cli.settings import parse_config, read_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.errors import GymError

_AGENTS = "responses_api_agents"


class ImportConfig(BaseNeMoGymCLIConfig):
    """Import another system's environment: write a config and a seeded dataset for it."""

    environment: str = Field(description="The environment, as SYSTEM:ID.")
    rows: Annotated[PositiveInt, Flag()] = Field(
        default=100, description="Number of rows in the dataset; by default 100."
    )
    seed: Annotated[int, Flag()] = Field(default=0, ge=0, description="The seed that determines the rows.")
    output_dirpath: Annotated[str, Flag("--output-dir", short="-o")] = Field(
        default="imported", description="The folder for both files; by default imported/."
    )
    options: Annotated[list[str], Flag("--option")] = Field(
        default_factory=list,
        description="A setting of the environment as key=value; the value is JSON, else plain text. May be repeated.",
    )
    requirements: Annotated[list[str], Flag("--requirement")] = Field(
        default_factory=list,
        description="A package that the environment needs besides its library, or its path; may be repeated.",
    )
    overwrite: Annotated[bool, Flag()] = Field(default=False, description="Replace existing files that differ.")
    json_summary: Annotated[bool, Flag()] = Field(
        default=False, alias="json", description="Print the paths and the command as JSON."
    )


def import_environment(overrides: list[str]) -> int:
    """Write an environment's config and dataset, and print the command that plays it."""
    config = parse_config(overrides, ImportConfig, needs_model=False)
    settings = read_settings(ImportConfig, config)
    system, environment_id = _split_name(settings.environment)
    options = dict(map(_parse_option, settings.options))
    requirements = list(dict.fromkeys(map(_resolve_requirement, settings.requirements)))
    imported, requirements = _fetch_rows(config, system, environment_id, settings, options, requirements)
    name = _choose_name(system, environment_id)
    dataset, config_file = (Path(settings.output_dirpath) / f"{name}{suffix}" for suffix in (".jsonl", ".yaml"))
    blocks = _make_blocks(system, name, imported.config, requirements, dataset)
    header = f"# {_build_command(settings)}\n"
    rows = imported.rows or []
    _write(
        {
            dataset: b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows),
            config_file: (header + yaml.safe_dump(blocks, sort_keys=False, allow_unicode=True, width=120)).encode(),
        },
        overwrite=settings.overwrite,
    )
    run = shlex.join([program_name(), "eval", "run", "--config", str(config_file), "--output", f"results/{name}.jsonl"])
    if settings.json_summary:
        files = {"config": str(config_file), "dataset": str(dataset)}
        render.json_data({"schema": 1, "environment": settings.environment, **files, "rows": len(rows), "command": run})
    else:
        render.data(f"{config_file}: the servers\n{dataset}: {len(rows)} rows\n\nplay it:\n  {run}")
    if len(rows) < settings.rows:
        render.note(f"note: {settings.environment} has {len(rows)} rows, not {settings.rows}")
    return 0


def list_environments(overrides: list[str], name: str) -> list[dict[str, Any]]:
    """Return the id and description of each of a system's environments."""
    config = parse_config(overrides, needs_model=False)
    return _open_catalog(config, SYSTEMS[name], []).list_environments()


def _split_name(name: str) -> tuple[System, str]:
    system, _, environment_id = name.partition(":")
    if system not in SYSTEMS:
        raise UsageError(
            f"{name!r} does not name a known system: there is no {system!r}. {did_you_mean(system, SYSTEMS)}\n"
            "hint: write SYSTEM:ID, such as reasoning_gym:chain_sum"
        )
    if not environment_id:
        raise UsageError(
            f"which environment of {system}? Write {system}:ID; an ID is {SYSTEMS[system].id_form}.\n"
            f"hint: `gym list environments --from {system}` lists them"
        )
    return SYSTEMS[system], environment_id


def _choose_name(system: System, environment_id: str) -> str:
    """Return the name for the files and servers; a path is shortened to its last part."""
    if environment_id.count("/") > 1 and "://" not in environment_id:
        environment_id = environment_id.rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9]+", "_", f"{system.name}_{environment_id}").strip("_")


def _parse_option(text: str) -> tuple[str, Any]:
    key, has_value, value = text.partition("=")
    if not has_value:
        raise UsageError(f"--option {text!r} is not of the form key=value")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _resolve_requirement(text: str) -> str:
    """Return an existing path as an absolute one, since servers run in other folders; leave anything else unchanged."""
    if (os.sep in text or text.startswith(".")) and Path(text).exists():
        return os.path.abspath(text)
    return text


# --- rows -------------------------------------------------------------------------------------------------------------


def _fetch_rows(
    config: DictConfig,
    system: System,
    environment_id: str,
    settings: ImportConfig,
    options: dict[str, Any],
    requirements: list[str],
) -> tuple[ImportedRows, list[str]]:
    """Return the rows and all packages the environment needs: those given, and those its catalog adds."""
    installs_id = system.installs_ids and not requirements and os.sep not in environment_id
    refusal: CatalogRefusal | None = None
    while True:
        try:
            imported = _open_catalog(config, system, requirements).make_rows(
                environment_id,
                rows=settings.rows,
                seed=settings.seed,
                options=options,
                built_with=requirements,
            )
        except CatalogRefusal as error:
            if refusal is not None or not installs_id:
                raise
            refusal = error
            requirements = [environment_id, *requirements]
            render.note(f"{system.name} does not know {environment_id!r}; trying to install a package of that name")
            continue
        except VenvBuildError as error:
            if refusal is None:
                raise
            raise GymError(f"{refusal}\nNor can a package of that name be installed: {error}") from error
        if imported.rows is not None:
            break
        requirements = list(dict.fromkeys([*requirements, *imported.requirements]))
    if not imported.rows:
        raise GymError(
            f"{settings.environment} has no rows.\n"
            f"hint: `gym list environments --from {system.name}` shows what each environment needs"
        )
    return imported, requirements


def _open_catalog(config: DictConfig, system: System, requirements: list[str]) -> Catalog:
    """Return a system's catalog; build its adapter's virtual environment first if it does not exist."""
    folder = server_folder(*system.folder.split("/"))
    plan = plan_venv(folder, venv_settings(config), of_instance=requirements)
    asyncio.run(build_venvs(config, [plan], render.note))
    return Catalog(folder, plan.python, os.environ)


# --- files ------------------------------------------------------------------------------------------------------------


def _make_blocks(
    system: System, name: str, additions: dict[str, dict[str, Any]], requirements: list[str], dataset: Path
) -> dict[str, Any]:
    """Return the adapter's config for one environment, with its servers named after it."""
    folder = server_folder(*system.folder.split("/"))
    template = load_file(folder / "configs" / f"{folder.name}.yaml").config
    plain: Any = OmegaConf.to_container(template, resolve=False)
    names: dict[str, str] = {}
    for instance, block in plain.items():
        ((kind, impls),) = block.items()
        ((impl, own),) = impls.items()
        is_adapter = f"{kind}/{impl}" == system.folder
        if not is_adapter and kind != _AGENTS:
            continue
        names[instance] = f"{name}_{impl}"
        if is_adapter:
            names[instance] = name
            own.update(additions.get("server", {}))
            if requirements:
                own["requirements"] = requirements
        if kind == _AGENTS:
            own.update(additions.get("agent", {}))
            own["datasets"] = [{"name": name, "type": "example", "jsonl_fpath": str(dataset), "num_repeats": 1}]
    return {names.get(instance, instance): _rename_references(block, names) for instance, block in plain.items()}


def _rename_references(value: Any, names: dict[str, str]) -> Any:
    """Return a config whose references to servers use their new names."""
    if isinstance(value, list):
        return [_rename_references(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"type", "name"}:
        return {**value, "name": names.get(value["name"], value["name"])}
    return {key: _rename_references(one, names) for key, one in value.items()}


def _build_command(settings: ImportConfig) -> str:
    """Return the command that writes these files again, without the output folder and with secrets masked."""
    words = ["gym", "import", settings.environment, "--rows", str(settings.rows), "--seed", str(settings.seed)]
    for text in settings.options:
        key = text.partition("=")[0]
        words += ["--option", f"{key}={MASK}" if is_secret_key(key) else text]
    for text in settings.requirements:
        words += ["--requirement", text]
    return shlex.join(words)


def _write(files: dict[Path, bytes], *, overwrite: bool) -> None:
    """Write all files or none; replace existing files with other content only if `overwrite` is set."""
    different = [path for path, content in files.items() if path.exists() and path.read_bytes() != content]
    if different and not overwrite:
        raise GymError(
            f"{', '.join(map(str, different))}: already there, with different content. Nothing was written.\n"
            "hint: choose another --output-dir, or replace it with --overwrite"
        )
    for path, content in files.items():
        write_atomically(path, content)
