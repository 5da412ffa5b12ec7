# SPDX-License-Identifier: Apache-2.0
"""Keys that nobody reads and that look like one that is missing: `entrypiont`, `max_step`, `config_path`.

A key counts as mistyped only if nothing is known to read it, something very similar is, and that something is not
there. Everything else is left alone, because servers and users have keys of their own.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from nemo_gym._config.dataset_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym._config.parse import COMMAND_LINE, INITIAL
from nemo_gym._config.paths import join_path
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import Provenance
from nemo_gym._config.reserved_keys import SETTINGS
from nemo_gym._config.server_types import (
    SERVER_TYPES,
    BaseRunServerInstanceConfig,
    BaseRunServerTypeConfig,
    server_types_in,
)
from nemo_gym._config.servers import Detected
from nemo_gym._util.nearest import nearest_spelling
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
    """Every key of a config that was probably mistyped."""
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
    read = {*servers, *detected.almost, *_referenced(provenance)}
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
        """A block that would be a server but for one key."""
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
            place = self._provenance.near(path)
            where = f"{join_path(path)}{f' ({place})' if place else ''}"
            self.problems.add(ConfigError, f"{where}: {what}. Did you mean {close[0]!r}?")


def _almost_references(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Mappings of `type` and `name` whose type is none."""
    if isinstance(value, Mapping):
        if set(value) == {"type", "name"} and value["type"] not in SERVER_TYPES and isinstance(value["type"], str):
            yield path, value
        for key, item in value.items():
            yield from _almost_references(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _almost_references(item, (*path, str(index)))


def _referenced(provenance: Provenance) -> set[str]:
    """The first keys of all interpolations: who is referred to is read by somebody."""
    return {key for layer in provenance.layers for key in re.findall(r"\$\{\s*(?:\w+:)?([\w-]+)", repr(layer.values))}
