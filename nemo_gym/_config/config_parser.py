# SPDX-License-Identifier: Apache-2.0
"""Turn the sources of a config into the config: the order in which everything happens.

Each step is a module of this package; this one calls them in order and collects what they find wrong.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nemo_gym._config.config_files import ConfigFile, Includes, load_file, load_includes, read_config_paths
from nemo_gym._config.config_paths import KeyPath, find_similar_paths, has_path, join_path, remove_path, split_path
from nemo_gym._config.defaults import Machine, check_settings, fill_defaults
from nemo_gym._config.directives import apply_directives, merge_values
from nemo_gym._config.interpolation import check_interpolations, check_missing_values, find_unset_variables, read_values
from nemo_gym._config.problems import Problems, read_reason
from nemo_gym._config.provenance import Layer, Provenance, make_layer
from nemo_gym._config.reserved_keys import SETTINGS
from nemo_gym._config.secret_lookup import find_secrets
from nemo_gym._config.server_blocks import Detected, check_almost_servers, check_references, detect_servers
from nemo_gym._config.server_names import complete_instances, replace_older_names, resolve_short_names
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.nearest import offer
from nemo_gym.errors import ConfigError

COMMAND_LINE = "command line"
INITIAL = "initial config"


@dataclass(frozen=True)
class Sources:
    """Everything a config is made of, strongest first: command line, initial values, env.yaml, and files they name."""

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
    """Notes for the user about what was not taken literally."""


def resolve(sources: Sources, machine: Machine, check: Callable[[Resolved], Problems] | None = None) -> Resolved:
    """Build and check the config, also with the caller's `check`; raise all its problems at once."""
    problems, resolved = examine(sources)
    if check is not None and resolved is not None:
        problems.extend(check(resolved))
    problems.raise_if_any()
    assert resolved is not None
    fill_defaults(resolved.config, resolved.servers.instances, machine)
    return resolved


def examine(sources: Sources) -> tuple[Problems, Resolved | None]:
    """Return what is wrong with a config, and the config before defaults, if it can be built at all."""
    problems = Problems()
    dotenv = None
    with problems.catch():
        dotenv = load_file(sources.dotenv_path) if sources.dotenv_path else None
    includes = _load_files(sources, dotenv, problems)
    if problems:  # other problems may only follow from a missing file
        return problems, None
    layers = _list_layers(includes, dotenv, sources)
    defaults, notes = complete_instances(layers, sources.search_roots)
    if sources.dotenv_path and sources.dotenv_path.is_absolute():
        notes.insert(0, f"settings are read from {sources.dotenv_path}")
    provenance = Provenance([*defaults, *layers])
    values = _merge(provenance, sources.deletions, problems)
    if problems:
        return problems, None
    KNOWN_SECRETS.add(find_secrets(values))  # before any message can quote them
    values["config_paths"] = includes.paths
    directed = apply_directives(values, provenance)
    problems.extend(directed.problems)
    provenance.inherited.update(directed.inherited)
    notes += [*directed.notes, *resolve_short_names(directed.values, layers[-1])]
    replace_older_names(directed.values)
    _collapse_dummy_models(directed.values)
    try:
        config = OmegaConf.create(directed.values)
    except OmegaConfBaseException as error:
        path = split_path(error.full_key or "")
        text = f"{join_path(path)!r} ({provenance.find_nearest(path)}) cannot be used: {read_reason(error)}"
        problems.add(ConfigError, text)
        return problems, None
    servers = _check(config, provenance, directed.unresolved, sources.search_roots, problems)
    return problems, Resolved(config, provenance, servers, tuple(notes))


def _load_files(sources: Sources, dotenv: ConfigFile | None, problems: Problems) -> Includes:
    """Load the files named by the command line, the initial values or env.yaml, whichever of these names any first."""
    from_dotenv = [(dotenv.name, dotenv.config)] if dotenv else []
    naming_sources = [(COMMAND_LINE, sources.command_line), (INITIAL, sources.initial), *from_dotenv]  # strongest first
    named_by = next((name for name, config in naming_sources if "config_paths" in config), COMMAND_LINE)
    includes = Includes()
    with problems.catch():
        paths = read_config_paths(_merge_configs([config for _, config in reversed(naming_sources)]), named_by)
        includes = load_includes(paths, sources.search_roots, named_by)
    problems.extend(includes.problems)
    return includes


def _merge_configs(configs: Sequence[Any]) -> DictConfig:
    """Merge as OmegaConf does, on copies: the sources stay unchanged, and flags such as read-only are lost."""
    plain = [OmegaConf.to_container(config) if OmegaConf.is_config(config) else config for config in configs]
    result = OmegaConf.merge({}, *plain)
    assert isinstance(result, DictConfig)
    return result


def _list_layers(includes: Includes, dotenv: ConfigFile | None, sources: Sources) -> list[Layer]:
    """Weakest first: files, env.yaml, initial values, command line."""
    return [
        *(make_layer(file) for file in includes.merge_order),
        *([make_layer(dotenv)] if dotenv else []),
        Layer(INITIAL, OmegaConf.to_container(sources.initial)),
        Layer(COMMAND_LINE, OmegaConf.to_container(sources.command_line)),
    ]


def _merge(provenance: Provenance, deletions: Sequence[str], problems: Problems) -> dict[str, Any]:
    """Merge the layers in order; the deletions of the command line come before its own values."""
    *lower, command_line = provenance.layers
    values: Any = {}
    for index, layer in enumerate(lower):
        values = _merge_layer(values, layer, Provenance(lower[:index]), problems)
    for path in map(split_path, deletions):
        if not has_path(values, path):
            guess = offer(find_similar_paths(values, path))
            problems.add(ConfigError, f"'~{join_path(path)}' deletes a key that no source defines.{guess}")
        remove_path(values, path)
    result: dict[str, Any] = _merge_layer(values, command_line, Provenance(lower), problems)
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
            reason = read_reason(error)
            problems.add(ConfigError, f"the values of {layer.name} cannot be merged with those before it: {reason}")
            return values
    return merge_values(values, deepcopy(layer.values))


def _extends_interpolation(base: Any, over: Any) -> bool:
    """Return whether `over` puts a mapping over `${...}`, which OmegaConf then replaces by what it refers to."""
    if isinstance(over, dict) and isinstance(base, dict):
        return any(_extends_interpolation(base[key], over[key]) for key in base.keys() & over.keys())
    return isinstance(over, dict) and isinstance(base, str) and "${" in base


def _report_conflicts(base: Any, over: Any, path: KeyPath, below: Provenance, layer: Layer, problems: Problems) -> None:
    """Report a mapping over a list, or a list over a mapping: one of the two is a mistake."""
    if isinstance(base, dict) and isinstance(over, dict):
        for key in base.keys() & over.keys():
            _report_conflicts(base[key], over[key], (*path, str(key)), below, layer, problems)
    elif {type(base), type(over)} == {dict, list}:
        lower, upper = ("a list" if isinstance(value, list) else "a mapping" for value in (base, over))
        problems.add(
            ConfigError,
            f"{join_path(path)!r} is {lower} in {below.find_nearest(path)} but {upper} in {layer.place(path)}.\n"
            "hint: items of a list cannot be overridden one by one; give the whole list",
        )


def _collapse_dummy_models(values: dict[str, Any]) -> None:
    """Drop a dummy model next to a real one, which takes the dummy's values as defaults."""
    for block in values.values():
        models = block.get("responses_api_models") if isinstance(block, dict) else None
        if isinstance(models, dict) and "dummy_model" in models and len(models) > 1:
            dummy = models.pop("dummy_model")
            for name in models:
                models[name] = merge_values(dummy, models[name])


def _check(
    config: DictConfig, provenance: Provenance, unresolved: set[str], roots: Sequence[Path], problems: Problems
) -> Detected:
    """Report everything that is wrong with a complete config, but not what follows from another problem."""
    values = read_values(config)
    servers = detect_servers(config, values)
    servers.unknown_yet |= unresolved
    _leave_out_unset_variables(config, servers, provenance.layers[-1])
    problems.extend(check_missing_values(values, provenance))
    problems.extend(check_interpolations(config, values, provenance))
    problems.extend(check_almost_servers(config, servers, provenance))
    problems.extend(check_references(servers, provenance, roots))
    problems.extend(check_settings(values.plain, values.holes))
    return servers


def _leave_out_unset_variables(config: DictConfig, servers: Detected, command_line: Layer) -> None:
    """Replace values that need an unset environment variable, and that nothing is known to read, with `???`.

    Servers, settings of commands and what the command line gives are read, and the `policy_` keys are read by the model
    servers that refer to them. Code that reads another value anyway gets the error then.
    """
    read = {instance.name for instance in servers.instances} | servers.unknown_yet | servers.almost.keys()
    read |= {key for key in SETTINGS if not key.startswith("policy_")}
    for path in find_unset_variables(servers.values):
        if path[0] not in read and not has_path(command_line.values, tuple(map(str, path))):
            del servers.values.broken[path]
            block: Any = config
            for key in path[:-1]:
                block = block[key]
            block[path[-1]] = "???"
