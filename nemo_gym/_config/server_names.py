# SPDX-License-Identifier: Apache-2.0
"""Names of servers that no loaded config defines: new ones on a command line, short ones, and one of an earlier age.

An override of a new instance is completed by the config that lies in the folder of its implementation, and a short
name in a reference leads to the only server that it can mean. Both leave a note. What stays incomplete is left as it
is, for others to report. Files are taken by their word: whoever writes one can write it in full. Only the name under
which agents of 2025 call the model under test, `openai_model`, leads to today's `policy_model` there as well.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nemo_gym._config.directives import merged
from nemo_gym._config.files import first_existing, load_file
from nemo_gym._config.paths import KeyPath, join_path
from nemo_gym._config.provenance import Layer, file_layer
from nemo_gym._config.reserved_keys import POLICY_MODEL_KEY_NAME
from nemo_gym._config.server_types import SERVER_TYPES, server_types_in
from nemo_gym._util.nearest import nearest_spelling
from nemo_gym.errors import ConfigError


def complete_instances(layers: Sequence[Layer], roots: Sequence[Path]) -> tuple[list[Layer], list[str]]:
    """Return a layer of defaults for each new instance that the last of `layers` names, and a note about each."""
    *lower, command_line = layers
    known = {str(name) for layer in lower for name in layer.values}
    defaults, notes = list[Layer](), list[str]()
    for name, block in command_line.values.items():
        if name not in known and not nearest_spelling(str(name), known):
            found = _find_defaults(str(name), block, roots)
            if found is not None:
                defaults.append(found)
                notes.append(f"no loaded config has a server {name!r}: taking what else it needs from {found.name}")
    return defaults, notes


def _find_defaults(name: str, block: Any, roots: Sequence[Path]) -> Layer | None:
    """Return the default config of the server that `block` overrides as instance `name`, if the two make it whole."""
    kinds = server_types_in(block)
    implementations = block[kinds[0]] if len(kinds) == 1 else None
    if not isinstance(implementations, dict) or len(implementations) != 1:
        return None
    kind, (implementation, settings) = kinds[0], next(iter(implementations.items()))
    if not isinstance(settings, dict) or "entrypoint" in settings:
        return None
    relative = f"{kind}/{implementation}/configs/{implementation}.yaml"
    path = first_existing(relative, roots)
    if path is None:
        return None
    try:
        layer = file_layer(load_file(path, relative))
    except ConfigError:
        return None
    blocks = {key: value[kind] for key, value in layer.values.items() if kind in server_types_in(value)}
    candidates = [key for key, code in blocks.items() if implementation in (code or ())]
    source = name if name in candidates else candidates[0] if len(candidates) == 1 else None
    if source is None or "???" in _walk_leaves(merged(layer.values[source], block)):
        return None
    lines = {(name, *key[1:]): line for key, line in layer.lines.items() if key[0] == source}
    return Layer(relative, {name: layer.values[source]}, lines)


def _walk_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _walk_leaves(item)
    else:
        yield value


def resolve_short_names(values: dict[str, Any], command_line: Layer) -> list[str]:
    """Replace, in `values`, short names of servers that `command_line` gives; return a note about each."""
    notes = []
    for path, reference in _references(values, command_line.values, ()):
        kind, name = reference["type"], reference["name"]
        servers = {str(key): block[kind] for key, block in values.items() if kind in server_types_in(block)}
        meant = [key for key, code in servers.items() if key == f"{name}_resources_server" or name in (code or ())]
        if name not in values and len(meant) == 1:
            reference["name"] = meant[0]
            notes.append(f"{join_path(path)}.name: no server is called {name!r}; it can only mean {meant[0]!r}")
    return notes


def _references(values: Any, given: Any, path: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the references in `values` whose name is in `given` too."""
    if isinstance(values, dict) and isinstance(given, dict):
        if values.get("type") in SERVER_TYPES and isinstance(given.get("name"), str):
            yield path, values
        for key in values.keys() & given.keys():
            yield from _references(values[key], given[key], (*path, str(key)))


logger = logging.getLogger(__name__)

OLDER_MODEL = "openai_model"


def replace_older_names(values: dict[str, Any]) -> dict[str, Any]:
    """Let references to a missing `openai_model` lead to the `policy_model` that is there."""
    if OLDER_MODEL in values or POLICY_MODEL_KEY_NAME not in values:
        return values
    return {key: _rename_references(value, key) for key, value in values.items()}


def _rename_references(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        if value.get("type") == "responses_api_models" and value.get("name") == OLDER_MODEL:
            logger.info("%s.name: %r is the older name of %r", path, OLDER_MODEL, POLICY_MODEL_KEY_NAME)
            return {**value, "name": POLICY_MODEL_KEY_NAME}
        return {key: _rename_references(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_rename_references(item, f"{path}[{index}]") for index, item in enumerate(value)]
    return value
