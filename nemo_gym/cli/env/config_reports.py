# SPDX-License-Identifier: Apache-2.0
"""`gym env validate` and `gym env resolve`: report problems of a config, its merged form, and where values come from.

Neither starts a server or looks for a port, so both are fast.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import Field

from nemo_gym import component_search_roots
from nemo_gym._authoring.config_catalog import describe_hidden_folders, visible_roots
from nemo_gym._config.command_flags import Flag
from nemo_gym._config.config_parser import Resolved, examine
from nemo_gym._config.config_paths import KeyPath, find_similar_paths, get_value, join_path, split_path
from nemo_gym._config.interpolation import read_values
from nemo_gym._config.overrides import override_token
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import DEFAULT, Given
from nemo_gym._config.reserved_keys import ALLOW_UNKNOWN_KEYS_KEY_NAME
from nemo_gym._config.secret_lookup import find_secrets, hide_secrets
from nemo_gym._config.server_code import ServerCode, check_implementations
from nemo_gym._config.unread_keys import find_typos
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.nearest import offer, suggest
from nemo_gym.cli import render
from nemo_gym.cli.default_model import ENDPOINT_KEYS, with_default_model
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.settings import CommandParser, check_command, split_off, validate_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig, ConfigError, NoServerInstancesError
from nemo_gym.errors import CommandLineError
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig

Kind = Literal["environment", "benchmark", "resources-server"]
_PLACES: dict[Kind, str] = {
    "environment": "environments/{name}/config.yaml",
    "benchmark": "benchmarks/{name}/config.yaml",
    "resources-server": "resources_servers/{name}/configs/{name}.yaml",
}
ALL_KINDS: Sequence[Kind] = tuple(_PLACES)
_OWN_KEYS = ("component_name", "catalog_kind", "manifest", "json", "explain")


class ValidateConfig(BaseNeMoGymCLIConfig):
    """Check a config without starting anything."""

    config_paths: list[str] | None = Field(default=None, description="Paths to YAML configuration files.")
    component_name: str | None = Field(default=None, description="An environment, benchmark or resources server.")
    catalog_kind: Annotated[Kind | None, Flag("--kind")] = Field(default=None, description="What NAME is.")
    manifest: Annotated[str | None, Flag()] = Field(default=None, description="A manifest.yaml to check as well.")
    as_json: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print what was found as JSON.")


class ResolveConfig(BaseNeMoGymCLIConfig):
    """Print the merged config, secrets hidden."""

    config_paths: list[str] | None = Field(default=None, description="Paths to YAML configuration files.")
    explain: Annotated[str | None, Flag()] = Field(
        default=None, description="A key: show which file and line sets it, and what that overrides."
    )
    as_json: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")


def validate(overrides: list[str]) -> int:
    """Report everything that is wrong; a stand-in replaces a missing model."""
    own, rest = split_off(overrides, *_OWN_KEYS)
    settings = validate_settings(ValidateConfig, own)
    kinds = [settings.catalog_kind] if settings.catalog_kind else ALL_KINDS
    if settings.component_name:
        rest = put_config_first(rest, find_named_config(settings.component_name, kinds))
    source = GlobalConfigDictParserConfig(overrides=with_default_model(rest), offline=True)
    source.initial_global_config_dict = _make_stand_in(source)
    problems, resolved = examine(GlobalConfigDictParser().sources(source))
    if resolved is not None:
        for note in resolved.notes:
            render.note(note)
        for note in _note_hidden_servers(resolved):
            render.note(note)
        problems.extend(_lint(resolved))
    if settings.manifest is not None:
        from nemo_gym._authoring.environment_manifest import read_manifest  # few have a manifest

        problems.extend(read_manifest(Path(settings.manifest))[1])
    code = int(bool(problems))
    if any(issubclass(kind, CommandLineError) for kind, _ in problems.pairs()):
        code = 2
    if settings.as_json:
        found = [{"kind": kind.__name__, "message": text} for kind, text in problems.pairs()]
        instances = resolved.servers.instances if resolved else []
        servers = [{"name": one.name, "server_type": one.SERVER_TYPE} for one in instances]
        render.json_data({"valid": not found, "problems": found, "servers": servers})
        return code
    if not problems:
        render.data("✓ Config is valid.")
        return 0
    texts = [text for _, text in problems.pairs()]
    if len(texts) > 1:
        numbered = [f"[{number}] {text}" for number, text in enumerate(texts, 1)]
        texts = [f"the config has {len(texts)} problems:", *numbered]
    render.error("\n\n".join(texts))
    return code


def resolve(overrides: list[str]) -> int:
    """Print the merged config, or explain one of its keys."""
    own, rest = split_off(overrides, *_OWN_KEYS)
    settings = validate_settings(ResolveConfig, own)
    source = GlobalConfigDictParserConfig(overrides=with_default_model(rest), offline=True, hide_secrets=True)
    if settings.explain is not None:
        return _explain(settings.explain, source, settings.as_json)
    config = CommandParser().parse(source)
    if settings.as_json:
        render.json_data(read_values(config).plain)
    else:
        render.data(OmegaConf.to_yaml(config, resolve=True).rstrip())
    return 0


def put_config_first(overrides: list[str], config: str) -> list[str]:
    """Put the config file `config` before those that `overrides` name."""
    given, others = split_off(overrides, "config_paths")
    more = given.get("config_paths") or []
    return [override_token("config_paths", [config, *(more if isinstance(more, list) else [more])]), *others]


# --- validate ---------------------------------------------------------------------------------------------------------


def _make_stand_in(source: GlobalConfigDictParserConfig) -> DictConfig:
    """Return the values of a model that replace those that no source gives: what is given is checked."""
    stand_in = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT.copy()
    _, resolved = examine(GlobalConfigDictParser().sources(source))
    if resolved is not None:
        values = resolved.servers.values
        for key in ENDPOINT_KEYS:
            if key in values.plain and (key,) not in values.holes:
                del stand_in[key]
    return stand_in


def _lint(resolved: Resolved) -> Problems:
    """Report what is wrong beyond the shape of a config: missing code, keys that nothing reads, no server."""
    roots = component_search_roots()
    servers = resolved.servers
    provenance = resolved.provenance
    problems = check_implementations(servers, provenance, roots)
    problems.extend(check_command(resolved))
    if not servers.values.plain.get(ALLOW_UNKNOWN_KEYS_KEY_NAME):
        problems.extend(find_typos(servers, provenance, ServerCode(roots)))
    own = [one for one in servers.instances if "dummy_model" not in one.server_type_config_dict.get(one.SERVER_TYPE)]
    if not own and not servers.almost and not problems:
        try:
            GlobalConfigDictParser().raise_on_no_server_instances(OmegaConf.masked_copy(resolved.config, _FILES))
        except NoServerInstancesError as error:
            problems.add(type(error), str(error))
    return problems


def _note_hidden_servers(resolved: Resolved) -> list[str]:
    """Name the servers of the config that are in several roots, of which only the first one runs."""
    used: dict[str, list[str]] = {}
    for instance in resolved.servers.instances:
        names = used.setdefault(instance.SERVER_TYPE, [])
        names += map(str, instance.server_type_config_dict.get(instance.SERVER_TYPE))
    roots = component_search_roots()
    return [note for server_type, names in used.items() for note in describe_hidden_folders(server_type, names, roots)]


_FILES = ["config_paths"]


def find_named_config(name: str, kinds: Sequence[Kind] = ALL_KINDS) -> str:
    """Find the config file of the environment, benchmark or resources server called `name`, in this order of kinds."""
    roots = component_search_roots()
    places = [_PLACES[kind].format(name=name) for kind in kinds]
    # A server folder that comes first hides the config of a later one, as `--resources-server` has it.
    searched = {place: visible_roots(place.partition("/")[0], name, roots) for place in places}
    found = [place for place in places if any((root / place).is_file() for root in searched[place])]
    if len(found) > 1:
        render.note(f"{name!r} is {' and '.join(found)}; the first one is meant here")
    if found:
        return found[0]
    own = [file for place in places for root in roots for file in _list_configs(root, place.partition("/")[0], name)]
    if own:
        listed = "".join(f"\n  {file}" for file in own)
        raise UsageError(
            f"no config is called {name!r}, but its folder has these:{listed}\n"
            f"hint: name one of them, as in `--config {own[0]}`"
        )
    folders = [root / place.partition("/")[0] for root in roots for place in places]
    guess = suggest(name, [entry.name for folder in folders for entry in folder.glob("[!._]*/")])
    listed = "".join(f"\n  {place}" for place in places)
    hint = "" if guess else f"\nhint: `gym search {name}` and `gym list resources-servers` show what there is"
    raise UsageError(f"there is no {name!r}.{guess} Looked for{listed}\nin {', '.join(map(str, roots))}{hint}")


def _list_configs(root: Path, collection: str, name: str) -> list[Path]:
    """Return the config files in the folder `name` of a collection of servers, environments or benchmarks."""
    folder = root / collection / name
    if collection == "resources_servers":
        folder = folder / "configs"
    return [path.relative_to(root) for path in sorted(folder.glob("*.yaml")) if path.name != "manifest.yaml"]


# --- resolve --explain ------------------------------------------------------------------------------------------------


def _explain(key: str, source: GlobalConfigDictParserConfig, as_json: bool) -> int:
    """Show which sources set a key, even in a broken config, since that is when people ask."""
    problems, resolved = examine(GlobalConfigDictParser().sources(source))
    if resolved is None:
        problems.raise_if_any()
        raise AssertionError("a config without problems is resolved")
    for note in resolved.notes:
        render.note(note)
    KNOWN_SECRETS.add(find_secrets(resolved.config))
    hide_secrets(resolved.config)
    plain = read_values(resolved.config).plain
    leaves = _find_leaves(plain, split_path(key))
    if not leaves:
        raise ConfigError(f"no source gives {key!r} a value.{offer(find_similar_paths(plain, split_path(key)))}")
    explained = [_explain_leaf(resolved, path, value) for path, value in leaves]
    if as_json:
        render.json_data(explained)
    else:
        render.data("\n".join(line for one in explained for line in _format_lines(one)))
    return 0


def _find_leaves(plain: Any, path: KeyPath) -> list[tuple[KeyPath, Any]]:
    """Find the values at or below `path`, one by one, since each can come from a different source."""
    try:
        value = get_value(plain, path)
    except KeyError:
        return []
    if isinstance(value, dict) and value:
        return [leaf for key in value for leaf in _find_leaves(plain, (*path, str(key)))]
    return [(path, value)]


def _explain_leaf(resolved: Resolved, path: KeyPath, value: Any) -> dict[str, Any]:
    given = resolved.provenance.list_given(path)
    return {
        "key": join_path(path),
        "value": value,
        "source": given[-1].place if given else DEFAULT,
        "sources": [_describe_source(one, path) for one in reversed(given)],
        "refers_to": _find_references(resolved, given[-1].value if given else None),
    }


def _find_references(resolved: Resolved, written: Any) -> list[dict[str, str]]:
    """Return the keys that a value refers to, and which source sets them."""
    if not isinstance(written, str):
        return []
    keys = re.findall(r"\$\{([A-Za-z_][\w.]*)\}", written)
    return [{"key": key, "source": resolved.provenance.of(key)} for key in keys]


def _describe_source(one: Given, path: KeyPath) -> dict[str, Any]:
    masked: Any = one.value
    for key in reversed(one.path):
        masked = {key: masked}
    hide_secrets(masked)
    for key in one.path:
        masked = masked[key]
    # What one source gives may repeat a secret that another one names.
    if isinstance(masked, str):
        masked = KNOWN_SECRETS.mask(masked)
    described = {"place": one.place, "value": masked}
    if one.path != path:
        described["inherited_from"] = join_path(one.path)
    return described


def _format_lines(explained: dict[str, Any]) -> list[str]:
    """Format the value, then its sources, the one that won first."""
    lines = [f"{explained['key']} = {explained['value']!r}"]
    for position, source in enumerate(explained["sources"]):
        verb = "set by" if position == 0 else "overrides"
        line = f"  {verb:9} {source['place']}: {source['value']!r}"
        if "inherited_from" in source:
            line += f", inherited from {source['inherited_from']}"
        lines.append(line)
    lines += [f"  {'reads':9} {one['key']}, set by {one['source']}" for one in explained["refers_to"]]
    if not explained["sources"]:
        lines.append("  set by    its default")
    return lines
