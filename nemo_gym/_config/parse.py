# SPDX-License-Identifier: Apache-2.0
"""From the sources of a config to the config itself: the order in which everything happens.

Each step is a module of this package; this one only puts them in a row and gathers what they find wrong.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nemo_gym._config.defaults import Machine, fill_defaults, setting_problems
from nemo_gym._config.directives import apply_directives, merged
from nemo_gym._config.files import ConfigFile, Includes, load_file, load_includes, read_config_paths
from nemo_gym._config.interpolation import interpolation_problems, missing_value_problems, read_values, unset_variables
from nemo_gym._config.paths import KeyPath, child, has_path, join_path, nearest_paths, split_path
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import Layer, Provenance, file_layer
from nemo_gym._config.reserved_keys import SETTINGS
from nemo_gym._config.secrets import secret_values
from nemo_gym._config.server_names import complete_instances, replace_older_names, resolve_short_names
from nemo_gym._config.servers import Detected, almost_server_problems, detect, reference_problems
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym.errors import ConfigError

COMMAND_LINE, INITIAL = "command line", "initial config"


@dataclass(frozen=True)
class Sources:
    """Everything a config is made of, weakest last: command line, initial values, env.yaml, and files they name."""

    command_line: DictConfig
    initial: DictConfig
    search_roots: Sequence[Path]
    dotenv_path: Path | None = None
    deletions: Sequence[str] = ()


@dataclass(frozen=True)
class Resolved:
    """A complete config, its servers, and where its values came from."""

    config: DictConfig
    provenance: Provenance
    servers: Detected = field(default_factory=Detected)
    notes: tuple[str, ...] = ()
    """What was understood in another way than it was written, for the user to see."""


def resolve(sources: Sources, machine: Machine, check: Callable[[Resolved], Problems] | None = None) -> Resolved:
    """Build and check the config, with a further `check` of the caller's; raises all its problems at once."""
    problems, resolved = examine(sources)
    if check is not None and resolved is not None:
        problems.extend(check(resolved))
    problems.raise_if_any()
    assert resolved is not None
    fill_defaults(resolved.config, resolved.servers.instances, machine)
    return resolved


def examine(sources: Sources) -> tuple[Problems, Resolved | None]:
    """Return what is wrong with a config, and the config itself before defaults, if it can be put together at all."""
    problems = Problems()
    dotenv = _load_dotenv(sources.dotenv_path, problems)
    includes = _load_files(sources, dotenv, problems)
    # Without all files, every later finding might be about something that a missing file defines.
    if problems:
        return problems, None
    layers = _layers(includes, dotenv, sources)
    defaults, notes = complete_instances(layers, sources.search_roots)
    provenance = Provenance([*defaults, *layers])
    values = _merge(provenance, sources.deletions, problems)
    if problems:
        return problems, None
    KNOWN_SECRETS.add(secret_values(values))  # before anything is said of them
    values["config_paths"] = includes.paths
    directed = apply_directives(values, provenance)
    problems.extend(directed.problems)
    provenance.inherited.update(directed.inherited)
    notes += [*directed.notes, *resolve_short_names(directed.values, layers[-1])]
    try:
        config = _create(_collapse_dummy_models(replace_older_names(directed.values)), provenance)
    except ConfigError as error:
        problems.add(type(error), str(error))
        return problems, None
    servers = _check(config, provenance, directed.unresolved, sources.search_roots, problems)
    return problems, Resolved(config, provenance, servers, tuple(notes))


def _load_dotenv(path: Path | None, problems: Problems) -> ConfigFile | None:
    if path is None:
        return None
    try:
        return load_file(path, path.name)
    except ConfigError as error:
        problems.add(type(error), str(error))
        return None


def _load_files(sources: Sources, dotenv: ConfigFile | None, problems: Problems) -> Includes:
    """Load the files that the command line, the initial values or env.yaml name: the first of these that names any."""
    from_dotenv = [(dotenv.name, dotenv.config)] if dotenv else []
    speakers = [(COMMAND_LINE, sources.command_line), (INITIAL, sources.initial), *from_dotenv]  # strongest first
    speaker = next((name for name, config in speakers if "config_paths" in config), COMMAND_LINE)
    try:
        paths = read_config_paths(_merge_configs([config for _, config in reversed(speakers)]), speaker)
    except ConfigError as error:
        problems.add(type(error), str(error))
        return Includes()
    includes = load_includes(paths, sources.search_roots, speaker)
    problems.extend(includes.problems)
    return includes


def _merge_configs(configs: Sequence[Any]) -> DictConfig:
    """Merge as OmegaConf does, on copies: the sources keep their values and lose flags such as read-only."""
    plain = [OmegaConf.to_container(config) if OmegaConf.is_config(config) else config for config in configs]
    result = OmegaConf.merge({}, *plain)
    assert isinstance(result, DictConfig)
    return result


def _layers(includes: Includes, dotenv: ConfigFile | None, sources: Sources) -> list[Layer]:
    """Weakest first: files, env.yaml, initial values, command line."""
    return [
        *(file_layer(file) for file in includes.merge_order),
        *([file_layer(dotenv)] if dotenv else []),
        Layer(INITIAL, OmegaConf.to_container(sources.initial)),
        Layer(COMMAND_LINE, OmegaConf.to_container(sources.command_line)),
    ]


def _merge(provenance: Provenance, deletions: Sequence[str], problems: Problems) -> dict[str, Any]:
    """Merge one layer over the other; deletions of the command line come before its own values."""
    *lower, command_line = provenance.layers
    values: Any = {}
    for index, layer in enumerate(lower):
        values = _merge_layer(values, layer, Provenance(lower[:index]), problems)
    for key in deletions:
        _delete(values, split_path(key), problems)
    values = _merge_layer(values, command_line, Provenance(lower), problems)
    result: dict[str, Any] = values
    return result


def _merge_layer(values: Any, layer: Layer, below: Provenance, problems: Problems) -> Any:
    conflicts = Problems()
    _report_conflicts(values, layer.values, (), below, layer, conflicts)
    problems.extend(conflicts)
    if conflicts:
        return values
    if _extends_interpolation(values, layer.values):
        try:
            return OmegaConf.to_container(_merge_configs([values, layer.values]))
        except OmegaConfBaseException as error:
            reason = (error.msg or str(error)).splitlines()[0]
            problems.add(ConfigError, f"what {layer.name} says cannot be merged with what comes before it: {reason}")
            return values
    return merged(values, deepcopy(layer.values))


def _extends_interpolation(base: Any, over: Any) -> bool:
    """Return whether a mapping is laid over `${...}`, which OmegaConf then replaces by what it refers to."""
    if isinstance(over, dict) and isinstance(base, dict):
        return any(_extends_interpolation(base[key], over[key]) for key in base.keys() & over.keys())
    return isinstance(over, dict) and isinstance(base, str) and "${" in base


def _report_conflicts(base: Any, over: Any, path: KeyPath, below: Provenance, layer: Layer, problems: Problems) -> None:
    """Report a mapping over a list, or a list over a mapping: one of the two is a mistake."""
    if isinstance(base, dict) and isinstance(over, dict):
        for key in base.keys() & over.keys():
            _report_conflicts(base[key], over[key], (*path, str(key)), below, layer, problems)
    elif {type(base), type(over)} == {dict, list}:
        problems.add(
            ConfigError,
            f"{join_path(path)!r} is {_kind(base)} in {below.near(path)} but {_kind(over)} in {layer.place(path)}.\n"
            "hint: items of a list cannot be overridden one by one; give the whole list",
        )


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "a mapping"


def _delete(values: dict[str, Any], path: KeyPath, problems: Problems) -> None:
    if not has_path(values, path):
        close = nearest_paths(values, path)
        guess = f"\nDid you mean {' or '.join(map(repr, close))}?" if close else ""
        problems.add(ConfigError, f"'~{join_path(path)}' deletes a key that no source defines.{guess}")
        return
    block: Any = values
    for key in path[:-1]:
        block = child(block, key)
    block.pop(path[-1] if isinstance(block, dict) else int(path[-1]))


def _create(values: dict[str, Any], provenance: Provenance) -> DictConfig:
    try:
        return OmegaConf.create(values)
    except OmegaConfBaseException as error:
        path = split_path(error.full_key or "")
        place = provenance.near(path)
        reason = (error.msg or str(error)).splitlines()[0]
        raise ConfigError(f"{join_path(path)!r} ({place}) cannot be used: {reason}") from error


def _collapse_dummy_models(values: dict[str, Any]) -> dict[str, Any]:
    """Drop a dummy model that was put beside a real one, which keeps the dummy's values as defaults."""
    for block in values.values():
        models = block.get("responses_api_models") if isinstance(block, dict) else None
        if isinstance(models, dict) and "dummy_model" in models and len(models) > 1:
            dummy = models.pop("dummy_model")
            for name in models:
                models[name] = merged(dummy, models[name])
    return values


def _check(
    config: DictConfig, provenance: Provenance, unresolved: set[str], roots: Sequence[Path], problems: Problems
) -> Detected:
    """Report everything that is wrong with a complete config; what follows from an earlier finding is left out."""
    values = read_values(config)
    servers = detect(config, values)
    servers.unknown_yet |= unresolved
    _leave_out_unset_variables(config, servers, provenance.layers[-1])
    problems.extend(missing_value_problems(values, provenance))
    problems.extend(interpolation_problems(config, values, provenance))
    problems.extend(almost_server_problems(config, servers, provenance))
    problems.extend(reference_problems(servers, provenance, roots))
    problems.extend(setting_problems(values.plain, values.holes))
    return servers


def _leave_out_unset_variables(config: DictConfig, servers: Detected, command_line: Layer) -> None:
    """Make values missing (`???`) that take an unset environment variable and that nothing is known to read.

    Servers, settings of commands and what the command line says are read. Whoever reads another one after all is told
    then. What the keys for `policy_model` say is read by the model servers that refer to them.
    """
    read = {instance.name for instance in servers.instances} | servers.unknown_yet | servers.almost.keys()
    read |= {key for key in SETTINGS if not key.startswith("policy_")}
    for path in unset_variables(servers.values):
        if path[0] not in read and not has_path(command_line.values, tuple(map(str, path))):
            del servers.values.broken[path]
            block: Any = config
            for key in path[:-1]:
                block = block[key]
            block[path[-1]] = "???"
