# SPDX-License-Identifier: Apache-2.0
"""Find keys that nothing reads: mistyped ones in files, and any at all on a command line.

Files may hold keys of their own, since other versions and other programs read them too. There a key counts as mistyped
only if nothing is known to read it, something very similar is read, and that something is not there. Whoever types an
override means it to have an effect now, so one that cannot have any is refused.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym._config.dataset_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym._config.parse import COMMAND_LINE, INITIAL, Resolved
from nemo_gym._config.paths import KeyPath, has_path, join_path
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import Provenance
from nemo_gym._config.reserved_keys import ALLOW_UNKNOWN_KEYS_KEY_NAME, SETTINGS
from nemo_gym._config.server_types import (
    SERVER_TYPES,
    BaseRunServerInstanceConfig,
    BaseRunServerTypeConfig,
    BaseServerConfig,
    server_types_in,
)
from nemo_gym._config.servers import Detected, ServerInstance, implementation_of
from nemo_gym._util.nearest import nearest, nearest_spelling
from nemo_gym.errors import ConfigError

KnownFields = Callable[[str, str, str], Mapping[str, list[str]] | None]
"""The fields that the server `<type>/<implementation>` with an entrypoint declares; None if it takes any."""

SERVER_KEYS = frozenset(
    {
        *BaseRunServerTypeConfig.model_fields,
        *BaseRunServerInstanceConfig.model_fields,
        "checks_waived",
        "description",
        "expose_tools_over_mcp",
        "external",
        "placement",
        "skip_verification",
        "skip_verification_reward",
        "value",
        "verified",
        "verified_url",
    }
)
_DATASET_KEYS = frozenset({*DatasetConfig.model_fields, *BenchmarkDatasetConfig.model_fields})


def typo_problems(detected: Detected, provenance: Provenance, known_fields: KnownFields) -> Problems:
    """Return every key of a config that was probably mistyped."""
    found = _Finder(provenance)
    plain = detected.values.plain
    servers = {instance.name: instance.SERVER_TYPE for instance in detected.instances}
    for name, block in plain.items():
        if name in servers:
            impl, inner = next(iter(block[servers[name]].items()))
            fields = known_fields(servers[name], str(impl), str(inner.get("entrypoint")))
            found.in_server((str(name), servers[name], str(impl)), inner, fields)
        elif isinstance(block, Mapping) and name not in detected.almost:
            found.in_block_that_is_no_server(str(name), block)
    read = {*servers, *detected.almost, *_list_referenced(provenance)}
    for layer in provenance.layers:
        # What only stands in for a missing model was not written by the user, and a command line is checked apart.
        if layer.name not in (INITIAL, COMMAND_LINE):
            found.in_settings({str(key): value for key, value in layer.values.items() if key not in read})
    return found.problems


class _Finder:
    def __init__(self, provenance: Provenance) -> None:
        self.problems = Problems()
        self._provenance = provenance

    def in_server(self, path: tuple[str, ...], block: Mapping[str, Any], fields: Collection[str] | None) -> None:
        if fields is not None:
            self._in_keys(path, block, SERVER_KEYS | set(fields))
        for index, dataset in enumerate(block.get("datasets") or ()):
            if isinstance(dataset, Mapping):
                self._in_keys((*path, "datasets", str(index)), dataset, _DATASET_KEYS)
        for place, reference in _almost_references(block, path):
            self._report(
                (*place, "type"), f"{reference['type']!r} is no kind of server", reference["type"], SERVER_TYPES
            )

    def in_block_that_is_no_server(self, name: str, block: Mapping[str, Any]) -> None:
        """Look for the one key that keeps a block from being a server."""
        kinds = server_types_in(block)
        if not kinds:
            typed = {key: value for key, value in block.items() if isinstance(value, Mapping)}
            self._in_keys((name,), typed, SERVER_TYPES)
        for kind in kinds:
            for impl, inner in (block[kind] or {}).items() if isinstance(block[kind], Mapping) else ():
                if isinstance(inner, Mapping):
                    self._in_keys((name, kind, str(impl)), inner, {"entrypoint"})

    def in_settings(self, values: Mapping[str, Any]) -> None:
        self._in_keys((), {key: value for key, value in values.items() if not server_types_in(value)}, SETTINGS)

    def _in_keys(self, path: tuple[str, ...], block: Mapping[str, Any], known: Collection[str]) -> None:
        absent = [name for name in known if name not in block]
        for key in map(str, block):
            if key not in known and not key.startswith("_") and self._provenance.of((*path, key)) != COMMAND_LINE:
                self._report((*path, key), f"nothing reads {key!r}", key, absent)

    def _report(self, path: tuple[str, ...], what: str, given: str, known: Collection[str]) -> None:
        close = nearest_spelling(str(given), known, limit=1)
        if close:
            where = f"{join_path(path)}{self._provenance.locate(path)}"
            self.problems.add(ConfigError, f"{where}: {what}. Did you mean {close[0]!r}?")


def _almost_references(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield mappings of `type` and `name` whose type does not exist."""
    if isinstance(value, Mapping):
        if set(value) == {"type", "name"} and value["type"] not in SERVER_TYPES and isinstance(value["type"], str):
            yield path, value
        for key, item in value.items():
            yield from _almost_references(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _almost_references(item, (*path, str(index)))


def _list_referenced(provenance: Provenance) -> set[str]:
    """Return the first keys of all interpolations, since somebody reads what is referred to."""
    return {key for layer in provenance.layers for key in re.findall(r"\$\{\s*(?:\w+:)?([\w-]+)", repr(layer.values))}


# --- command lines ----------------------------------------------------------------------------------------------------


_HINT = f"hint: `+{ALLOW_UNKNOWN_KEYS_KEY_NAME}=true` lets it pass"
_SHARED_PREFIXES = ("wandb_", "mlflow_", "hf_")
"""Families of settings that libraries of others read as well."""


@dataclass(frozen=True)
class ServerCode:
    """What can be known of the code behind servers without running it."""

    fields_of: Callable[[str, str, str], Mapping[str, list[str]] | None]
    """The fields that the server `<type>/<implementation>` with an entrypoint declares; None if it takes any."""
    mentions: Callable[[str, str, str], bool]
    """Whether the code of `<type>/<implementation>` speaks of a key."""


def command_line_problems(
    resolved: Resolved, other_settings: Callable[[], Collection[str]], code: ServerCode
) -> Problems:
    """Return every override that would have no effect.

    `other_settings` gives the settings of all commands, since a script may pass those of all to each. It is asked only
    about keys that are not among the common ones.
    """
    checker = _Checker(resolved, other_settings, code)
    if not resolved.servers.values.plain.get(ALLOW_UNKNOWN_KEYS_KEY_NAME):
        checker.check()
    return checker.problems


def interpolated_keys(provenance: Provenance) -> set[str]:
    """Return every key that an interpolation passes through: somebody reads it."""
    texts = re.findall(r"\$\{([^{}]*)\}", repr([layer.values for layer in provenance.layers]))
    return {key for text in texts for key in re.findall(r"[\w-]+", text)}


class _Checker:
    def __init__(self, resolved: Resolved, other_settings: Callable[[], Collection[str]], code: ServerCode) -> None:
        *lower, command_line = resolved.provenance.layers
        self.problems = Problems()
        self._lower, self._given = lower, command_line.values
        self._plain = resolved.servers.values.plain
        self._instances = {instance.name: instance for instance in resolved.servers.instances}
        self._undecided = {*resolved.servers.almost, *resolved.servers.unknown_yet}
        self._interpolated = interpolated_keys(resolved.provenance)
        self._other_settings, self._code = other_settings, code

    def check(self) -> None:
        for name, value in self._given.items():
            if name in self._instances:
                self._check_instance(self._instances[name], value)
            elif name == "head_server":
                self._check_keys(("head_server",), value, BaseServerConfig.model_fields)
            elif not self._is_read((str(name),)) and name not in self._undecided:
                self._check_top_level(str(name), value)

    def _check_top_level(self, name: str, value: Any) -> None:
        if server_types_in(value):
            if not self._plain.get("no_serve"):  # else the servers are already running, with another config
                self._report_absent_instance(name, value)
            return
        if name in SETTINGS:
            return
        settings = {*SETTINGS, *self._other_settings()}
        if name in settings or self._is_mentioned(name):
            return
        # A driver of the user's own may read whatever it likes.
        is_free = name.startswith(_SHARED_PREFIXES) or self._plain.get("rollout_collection_driver")
        if not is_free or nearest_spelling(name, settings):
            self._report((name,), nearest(name, {*settings, *self._instances}, limit=1))

    def _check_instance(self, instance: ServerInstance, value: Any) -> None:
        kind, implementation = instance.SERVER_TYPE, implementation_of(instance)
        whole = (instance.name, kind, implementation)
        for key in value if isinstance(value, Mapping) else ():
            if key != kind and not self._is_read((instance.name, str(key))):
                place = f"{join_path((instance.name, str(key)))} (command line)"
                self.problems.add(
                    ConfigError,
                    f"{place}: nothing reads it there.\n"
                    f"hint: settings of {instance.name!r} stand in `{join_path(whole)}`, as in "
                    f"`++{join_path((*whole, str(key)))}=…`",
                )
        block = _value_at(value, (kind, implementation))
        entrypoint = instance.get_inner_run_server_config().entrypoint
        fields = self._code.fields_of(kind, implementation, entrypoint)
        if not isinstance(block, Mapping) or fields is None:
            return
        known = {*SERVER_KEYS, *fields}
        for key in map(str, block):
            if key not in known and not self._code.mentions(kind, implementation, key):
                self._check_keys(whole, {key: block[key]}, known)
            reference = _value_at(self._plain, (*whole, key))
            if isinstance(reference, Mapping) and reference.get("type") in SERVER_TYPES:
                self._check_keys((*whole, key), block[key], ("type", "name"))

    def _check_keys(self, path: KeyPath, block: Any, known: Collection[str]) -> None:
        for key in map(str, block) if isinstance(block, Mapping) else ():
            if key not in known and not self._is_read((*path, key)):
                self._report((*path, key), nearest(key, known, limit=1))

    def _is_read(self, path: KeyPath) -> bool:
        """Return whether a file has the key too, which may know why, or an interpolation leads there."""
        key = path[-1]
        return (
            key.startswith("_") or key in self._interpolated or any(has_path(one.values, path) for one in self._lower)
        )

    def _is_mentioned(self, key: str) -> bool:
        servers = {(one.SERVER_TYPE, implementation_of(one)) for one in self._instances.values()}
        return any(self._code.mentions(kind, implementation, key) for kind, implementation in servers)

    def _report(self, path: KeyPath, close: list[str]) -> None:
        guess = f" Did you mean {close[0]!r}?" if close else ""
        self.problems.add(ConfigError, f"{join_path(path)} (command line): nothing reads {path[-1]!r}.{guess}\n{_HINT}")

    def _report_absent_instance(self, name: str, value: Mapping[str, Any]) -> None:
        kind = server_types_in(value)[0]
        implementation = next(iter(value[kind]), None) if isinstance(value[kind], Mapping) else None
        alike = [
            one.name
            for one in self._instances.values()
            if kind == one.SERVER_TYPE and implementation in one.server_type_config_dict[kind]
        ]
        close = nearest_spelling(name, self._instances, limit=1) or alike or nearest(name, self._instances, limit=1)
        guess = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        listed = ", ".join(map(repr, self._instances)) or "none"
        self.problems.add(
            ConfigError,
            f"{name} (command line): no loaded config has a server {name!r}, and the override alone does not make one."
            f"{guess}\nservers of the config: {listed}\n"
            f"hint: correct the name, or add the config that defines {name!r} to `config_paths`",
        )


def _value_at(value: Any, path: KeyPath) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
