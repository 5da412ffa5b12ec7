# SPDX-License-Identifier: Apache-2.0
"""Names of servers that no loaded config defines: new instances and short names on a command line, and an old name.

An override of a new instance is completed from the config in the folder of its implementation, and a short name in a
reference is replaced by the only server it can mean. Both leave a note. What stays incomplete is reported elsewhere.
Files get no such help, because their authors can write names in full, with one exception: agents written in 2025 call
the model under test `openai_model`, which means `policy_model` in files too.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nemo_gym._config.config_files import find_first, load_file
from nemo_gym._config.config_paths import get_value, has_path, join_path, walk_mappings
from nemo_gym._config.directives import merge_values
from nemo_gym._config.provenance import Layer, make_layer
from nemo_gym._config.reserved_keys import POLICY_MODEL_KEY_NAME
from nemo_gym._config.server_types import SERVER_TYPES, list_server_types
from nemo_gym._util.nearest import nearest_spelling
from nemo_gym.errors import ConfigError

logger = logging.getLogger(__name__)

OLDER_MODEL = "openai_model"


def complete_instances(layers: Sequence[Layer], roots: Sequence[Path]) -> tuple[list[Layer], list[str]]:
    """Return a layer of defaults for each new instance that the last of `layers` names, and a note about each."""
    *lower, command_line = layers
    known = {str(name) for layer in lower for name in layer.values}
    defaults = list[Layer]()
    notes = list[str]()
    for name, block in command_line.values.items():
        if name not in known and not nearest_spelling(str(name), known):
            found = _find_defaults(str(name), block, roots)
            if found is not None:
                defaults.append(found)
                notes.append(f"no loaded config has a server {name!r}: taking what else it needs from {found.name}")
    return defaults, notes


def _find_defaults(name: str, block: Any, roots: Sequence[Path]) -> Layer | None:
    """Return the default config of the server that `block` overrides as `name`, if the two together are complete."""
    kinds = list_server_types(block)
    if len(kinds) != 1:
        return None
    kind = kinds[0]
    implementations = block[kind]
    if not isinstance(implementations, dict) or len(implementations) != 1:
        return None
    implementation, settings = next(iter(implementations.items()))
    if not isinstance(settings, dict) or "entrypoint" in settings:
        return None
    relative = f"{kind}/{implementation}/configs/{implementation}.yaml"
    path = find_first(relative, roots)
    if path is None:
        return None
    try:
        layer = make_layer(load_file(path, relative))
    except ConfigError:
        return None
    blocks = {key: value[kind] for key, value in layer.values.items() if kind in list_server_types(value)}
    candidates = [key for key, code in blocks.items() if implementation in (code or ())]
    if name not in candidates and len(candidates) != 1:
        return None
    source = name if name in candidates else candidates[0]
    if "???" in _walk_leaves(merge_values(layer.values[source], block)):
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
    """Replace, in `values`, the short names of servers that `command_line` gives; return a note about each."""
    notes = []
    for place, given in walk_mappings(command_line.values):
        path = tuple(map(str, place))
        reference = get_value(values, path) if has_path(values, path) else None
        if not isinstance(given.get("name"), str) or not isinstance(reference, dict):
            continue
        kind = reference.get("type")
        name = reference.get("name")
        if kind not in SERVER_TYPES or name in values:
            continue
        servers = {str(key): block[kind] for key, block in values.items() if kind in list_server_types(block)}
        meant = [key for key, code in servers.items() if key == f"{name}_resources_server" or name in (code or ())]
        if len(meant) == 1:
            reference["name"] = meant[0]
            notes.append(f"{join_path(path)}.name: no server is called {name!r}; it can only mean {meant[0]!r}")
    return notes


def replace_older_names(values: dict[str, Any]) -> None:
    """Make references to a missing `openai_model` point to `policy_model`, if there is one."""
    if OLDER_MODEL in values or POLICY_MODEL_KEY_NAME not in values:
        return
    for path, reference in walk_mappings(values):
        if reference.get("type") == "responses_api_models" and reference.get("name") == OLDER_MODEL:
            logger.info("%s.name: %r is the older name of %r", join_path(path), OLDER_MODEL, POLICY_MODEL_KEY_NAME)
            reference["name"] = POLICY_MODEL_KEY_NAME
