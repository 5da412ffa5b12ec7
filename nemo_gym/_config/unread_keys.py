# SPDX-License-Identifier: Apache-2.0
"""Find keys that nothing reads: mistyped keys in files, and any unread key on a command line.

Files may hold keys of their own, since other versions and other programs read them too. A key in a file counts as
mistyped only if nothing is known to read it and a very similar key is read but not given. People who type an
override want it to have an effect, so an override that cannot have one is refused.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from nemo_gym._config.config_parser import COMMAND_LINE, INITIAL, Resolved
from nemo_gym._config.config_paths import KeyPath, has_path, join_path, walk_mappings
from nemo_gym._config.dataset_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import Provenance
from nemo_gym._config.reserved_keys import ALLOW_UNKNOWN_KEYS_KEY_NAME, SETTINGS
from nemo_gym._config.server_blocks import Detected, get_implementation
from nemo_gym._config.server_code import ServerCode
from nemo_gym._config.server_types import (
    SERVER_TYPES,
    BaseRunServerInstanceConfig,
    BaseRunServerTypeConfig,
    BaseServerConfig,
    RayPlacementConfig,
    ServerInstance,
    list_server_types,
)
from nemo_gym._util.nearest import nearest, nearest_spelling, offer
from nemo_gym.errors import CommandLineError, ConfigError

SERVER_KEYS = frozenset(
    {
        *BaseRunServerTypeConfig.model_fields,
        *BaseRunServerInstanceConfig.model_fields,
        *RayPlacementConfig.model_fields,
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


def find_typos(detected: Detected, provenance: Provenance, code: ServerCode) -> Problems:
    """Report every key of a config that was probably mistyped."""
    finder = _TypoFinder(provenance)
    plain = detected.values.plain
    servers = {instance.name: instance.SERVER_TYPE for instance in detected.instances}
    for name, block in plain.items():
        if name in servers:
            impl, inner = next(iter(block[servers[name]].items()))
            fields = code.find_fields(servers[name], str(impl), str(inner.get("entrypoint")))
            finder.check_server((str(name), servers[name], str(impl)), inner, fields)
        elif isinstance(block, Mapping) and name not in detected.almost:
            finder.check_other_block(str(name), block)
    read = {*servers, *detected.almost, *_list_referenced(provenance)}
    for layer in provenance.layers:
        # The user did not write the initial values, and the command line has a check of its own.
        if layer.name not in (INITIAL, COMMAND_LINE):
            others = {key: value for key, value in layer.values.items() if key not in read}
            finder.check_keys(
                (), {key: value for key, value in others.items() if not list_server_types(value)}, SETTINGS
            )
    return finder.problems


class _TypoFinder:
    def __init__(self, provenance: Provenance) -> None:
        self.problems = Problems()
        self._provenance = provenance

    def check_server(self, path: tuple[str, ...], block: Mapping[str, Any], fields: Collection[str] | None) -> None:
        if fields is not None:
            self.check_keys(path, block, SERVER_KEYS | set(fields))
        for index, dataset in enumerate(block.get("datasets") or ()):
            if isinstance(dataset, Mapping):
                self.check_keys((*path, "datasets", str(index)), dataset, _DATASET_KEYS)
        for place, reference in walk_mappings(block, path):
            kind = reference.get("type")
            if set(reference) == {"type", "name"} and isinstance(kind, str) and kind not in SERVER_TYPES:
                self._report((*place, "type"), f"{kind!r} is not a type of server", kind, SERVER_TYPES)

    def check_other_block(self, name: str, block: Mapping[str, Any]) -> None:
        """Look for the one key that keeps a block from being a server."""
        kinds = list_server_types(block)
        if not kinds:
            typed = {key: value for key, value in block.items() if isinstance(value, Mapping)}
            self.check_keys((name,), typed, SERVER_TYPES)
        for kind in kinds:
            for impl, inner in (block[kind] or {}).items() if isinstance(block[kind], Mapping) else ():
                if isinstance(inner, Mapping):
                    self.check_keys((name, kind, str(impl)), inner, {"entrypoint"})

    def check_keys(self, path: tuple[str, ...], block: Mapping[str, Any], known: Collection[str]) -> None:
        absent = [name for name in known if name not in block]
        for key in map(str, block):
            if key not in known and not key.startswith("_") and self._provenance.of((*path, key)) != COMMAND_LINE:
                self._report((*path, key), f"nothing reads {key!r}", key, absent)

    def _report(self, path: tuple[str | int, ...], what: str, given: str, known: Collection[str]) -> None:
        close = nearest_spelling(given, known, limit=1)
        if close:
            where = f"{join_path(path)}{self._provenance.locate(path)}"
            self.problems.add(ConfigError, f"{where}: {what}. Did you mean {close[0]!r}?")


def _list_referenced(provenance: Provenance) -> set[str]:
    """Return the first keys of all interpolations: what they refer to is read."""
    return {key for layer in provenance.layers for key in re.findall(r"\$\{\s*(?:\w+:)?([\w-]+)", repr(layer.values))}


# --- command lines ----------------------------------------------------------------------------------------------------


_HINT = f"hint: `+{ALLOW_UNKNOWN_KEYS_KEY_NAME}=true` accepts it"
SHARED_PREFIXES = ("wandb_", "mlflow_", "hf_")
"""Families of settings that other libraries read as well."""


def check_command_line(
    resolved: Resolved, flags: Collection[str], other_settings: Callable[[], Collection[str]], code: ServerCode
) -> Problems:
    """Report every override that would have no effect.

    `flags` are the settings of all commands that have a flag, since a script may pass all of them to each command.
    `other_settings` returns the rest, and is called only for keys that are neither among these nor common settings.
    """
    checker = _OverrideChecker(resolved, flags, other_settings, code)
    if not resolved.servers.values.plain.get(ALLOW_UNKNOWN_KEYS_KEY_NAME):
        checker.check()
    return checker.problems


def _list_interpolated_keys(provenance: Provenance) -> set[str]:
    """Return every key on the path of an interpolation: such keys are read."""
    texts = re.findall(r"\$\{([^{}]*)\}", repr([layer.values for layer in provenance.layers]))
    return {key for text in texts for key in re.findall(r"[\w-]+", text)}


class _OverrideChecker:
    def __init__(
        self,
        resolved: Resolved,
        flags: Collection[str],
        other_settings: Callable[[], Collection[str]],
        code: ServerCode,
    ) -> None:
        *lower, command_line = resolved.provenance.layers
        self.problems = Problems()
        self._lower = lower
        self._given = command_line.values
        self._plain = resolved.servers.values.plain
        self._instances = {instance.name: instance for instance in resolved.servers.instances}
        self._undecided = {*resolved.servers.almost, *resolved.servers.unknown_yet}
        self._interpolated = _list_interpolated_keys(resolved.provenance)
        self._flags = flags
        self._other_settings = other_settings
        self._code = code

    def check(self) -> None:
        for name, value in self._given.items():
            if name in self._instances:
                self._check_instance(self._instances[name], value)
            elif name == "head_server":
                self._check_keys(("head_server",), value, BaseServerConfig.model_fields)
            elif not self._is_read((str(name),)) and name not in self._undecided:
                self._check_top_level(str(name), value)

    def _check_top_level(self, name: str, value: Any) -> None:
        if list_server_types(value):
            if not self._plain.get("no_serve"):  # else the servers are already running, with another config
                self._report_absent_instance(name, value)
            return
        if name in SETTINGS or name in self._flags:
            return
        settings = {*SETTINGS, *self._flags, *self._other_settings()}
        if name in settings or self._is_mentioned(name):
            return
        # A driver that the user wrote may read any key.
        is_free = name.startswith(SHARED_PREFIXES) or self._plain.get("rollout_collection_driver")
        if not is_free or nearest_spelling(name, settings):
            self._report((name,), nearest(name, {*settings, *self._instances}, limit=1))

    def _check_instance(self, instance: ServerInstance, value: Any) -> None:
        kind = instance.SERVER_TYPE
        implementation = get_implementation(instance)
        whole = (instance.name, kind, implementation)
        for key in value if isinstance(value, Mapping) else ():
            if key != kind and not self._is_read((instance.name, str(key))):
                place = f"{join_path((instance.name, str(key)))} (command line)"
                self.problems.add(
                    CommandLineError,
                    f"{place}: nothing reads it there.\n"
                    f"hint: settings of {instance.name!r} belong in `{join_path(whole)}`, as in "
                    f"`++{join_path((*whole, str(key)))}=…`",
                )
        block = _find_value(value, (kind, implementation))
        entrypoint = instance.get_inner_run_server_config().entrypoint
        fields = self._code.find_fields(kind, implementation, entrypoint)
        if not isinstance(block, Mapping) or fields is None:
            return
        known = {*SERVER_KEYS, *fields}
        for key in map(str, block):
            if key not in known and not self._code.mentions(kind, implementation, key):
                self._check_keys(whole, {key: block[key]}, known)
            reference = _find_value(self._plain, (*whole, key))
            if isinstance(reference, Mapping) and reference.get("type") in SERVER_TYPES:
                self._check_keys((*whole, key), block[key], ("type", "name"))

    def _check_keys(self, path: KeyPath, block: Any, known: Collection[str]) -> None:
        for key in map(str, block) if isinstance(block, Mapping) else ():
            if key not in known and not self._is_read((*path, key)):
                self._report((*path, key), nearest(key, known, limit=1))

    def _is_read(self, path: KeyPath) -> bool:
        """Return whether a file has the key too, whose author may know why, or an interpolation uses it."""
        key = path[-1]
        return (
            key.startswith("_") or key in self._interpolated or any(has_path(one.values, path) for one in self._lower)
        )

    def _is_mentioned(self, key: str) -> bool:
        servers = {(one.SERVER_TYPE, get_implementation(one)) for one in self._instances.values()}
        return any(self._code.mentions(kind, implementation, key) for kind, implementation in servers)

    def _report(self, path: KeyPath, close: list[str]) -> None:
        text = f"{join_path(path)} (command line): nothing reads {path[-1]!r}.{offer(close)}\n{_HINT}"
        self.problems.add(CommandLineError, text)

    def _report_absent_instance(self, name: str, value: Mapping[str, Any]) -> None:
        kind = list_server_types(value)[0]
        implementation = next(iter(value[kind]), None) if isinstance(value[kind], Mapping) else None
        alike = [
            one.name
            for one in self._instances.values()
            if kind == one.SERVER_TYPE and implementation in one.server_type_config_dict[kind]
        ]
        close = nearest_spelling(name, self._instances, limit=1) or alike or nearest(name, self._instances, limit=1)
        listed = ", ".join(map(repr, self._instances)) or "none"
        self.problems.add(
            CommandLineError,
            f"{name} (command line): no loaded config has a server {name!r}, and the override alone does not make one."
            f"{offer(close)}\nservers of the config: {listed}\n"
            f"hint: correct the name, or add the config that defines {name!r} to `config_paths`",
        )


def _find_value(value: Any, path: KeyPath) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
