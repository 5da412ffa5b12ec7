# SPDX-License-Identifier: Apache-2.0
"""Find the servers of a config, the blocks that were meant to be servers but are not, and bad references.

A server is any block outside the reserved keys that has the shape described in `server_types.py`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from nemo_gym._config.config_files import find_first
from nemo_gym._config.config_paths import KeyPath, join_path, walk_mappings
from nemo_gym._config.interpolation import ConfigValues, read_values
from nemo_gym._config.problems import Problems, explain_place
from nemo_gym._config.provenance import NOWHERE, Provenance
from nemo_gym._config.reserved_keys import RESERVED_TOP_LEVEL_KEYS
from nemo_gym._config.secret_lookup import dump_masked
from nemo_gym._config.server_types import (
    SERVER_TYPES,
    ServerInstance,
    ServerType,
    is_almost_server,
    list_server_types,
    validate_server_instance,
)
from nemo_gym._util.nearest import did_you_mean
from nemo_gym.errors import AlmostServerError, ServerRefNotFoundError

logger = logging.getLogger(__name__)


@dataclass
class Detected:
    """The servers of a config, and the blocks that look like servers, with the reasons why they are not.

    `unknown_yet` are blocks that may turn out to be servers once their missing values are given.
    """

    values: ConfigValues = field(default_factory=lambda: ConfigValues({}))
    instances: list[ServerInstance] = field(default_factory=list)
    almost: dict[str, ValidationError] = field(default_factory=dict)
    unknown_yet: set[str] = field(default_factory=set)


def detect_servers(config: DictConfig, values: ConfigValues) -> Detected:
    """Sort the blocks of `config`; mistakes at places whose value is missing do not count."""
    found = Detected(values)
    for name, block in values.plain.items():
        if name in RESERVED_TOP_LEVEL_KEYS or not list_server_types(block):
            continue
        try:
            found.instances.append(validate_server_instance(str(name), block, config[name]))
        except ValidationError as error:
            if all((str(name), *_locate(mistake)) in values.holes for mistake in error.errors()):
                found.unknown_yet.add(str(name))
            elif is_almost_server(block):
                found.almost[str(name)] = error
    return found


def get_implementation(instance: ServerInstance) -> str:
    """Return the name of the folder that holds the code of `instance`."""
    return str(next(iter(instance.server_type_config_dict[instance.SERVER_TYPE])))


def find_servers(config: DictConfig) -> list[ServerInstance]:
    """Return the servers of a complete config, in its order."""
    return detect_servers(config, read_values(config)).instances


def check_almost_servers(
    config: DictConfig, detected: Detected | None = None, provenance: Provenance = NOWHERE
) -> Problems:
    """Report the almost-servers as problems, or log them if `error_on_almost_servers` is false."""
    problems = Problems()
    detected = detected or detect_servers(config, read_values(config))
    for name, error in detected.almost.items():
        text = explain_almost_server(name, error, provenance, config)
        if detected.values.plain.get("error_on_almost_servers", True):
            block = dump_masked(OmegaConf.masked_copy(config, name)).rstrip()
            problems.add(AlmostServerError, f"{text}\nhint: fix it, or pass `++error_on_almost_servers=false`\n{block}")
        else:
            logger.warning(text)
    return problems


def explain_almost_server(
    name: str, error: ValidationError, provenance: Provenance = NOWHERE, config: DictConfig | None = None
) -> str:
    """Return why the block `name` is not a server, one line per mistake."""
    lines = [f"{name!r} looks like a server but is not a valid one, so it will not be started:"]
    for mistake in error.errors():
        path = (name, *_locate(mistake))
        one = "an instance has exactly one implementation" if mistake["type"] == "too_long" else ""
        lines.append(f"  {join_path(path)}: {one or explain_place(path, [mistake])}{provenance.locate(path)}")
    return "\n".join([*lines, *_list_rival_definitions(name, provenance, config)])


def _locate(mistake: Any) -> KeyPath:
    """Return the path inside the block, without the tags of unions that pydantic adds."""
    place = list(mistake["loc"][1:])
    if "datasets" in place:
        del place[place.index("datasets") + 2 : place.index("datasets") + 3]
    return tuple(map(str, place))


def _list_rival_definitions(name: str, provenance: Provenance, config: DictConfig | None) -> list[str]:
    """Return the sources of both servers if two of them share a name."""
    block = config[name] if config is not None else {}
    rivals = [(kind, str(impl)) for kind in list_server_types(block) for impl in block[kind] or ()]
    if len(rivals) < 2:
        return []
    lines = [f"  {kind}.{impl}  ({provenance.find_nearest((name, kind, impl)) or 'unknown'})" for kind, impl in rivals]
    return [f"two servers share the name {name!r}:", *lines]


def check_references(detected: Detected, provenance: Provenance = NOWHERE, roots: Sequence[Path] = ()) -> Problems:
    """Report references, at any depth of a server's block, to servers that the config does not define."""
    problems = Problems()
    values = detected.values
    defined = {(instance.SERVER_TYPE, instance.name) for instance in detected.instances}
    undecided = set(detected.almost) | detected.unknown_yet
    for instance in detected.instances:
        block = values.plain[instance.name][instance.SERVER_TYPE]
        for path, reference in walk_mappings(block, (instance.name, instance.SERVER_TYPE)):
            kind = reference.get("type")
            name = reference.get("name")
            if kind not in SERVER_TYPES or not isinstance(name, str):
                continue
            known = (kind, name) in defined or name in undecided
            if not known and (*map(str, path), "name") not in values.holes:
                text = _explain_unknown_reference(path, kind, name, defined, provenance, roots)
                problems.add(ServerRefNotFoundError, text)
    return problems


def _explain_unknown_reference(
    path: tuple[str | int, ...],
    kind: ServerType,
    name: str,
    defined: set[tuple[Any, str]],
    provenance: Provenance,
    roots: Sequence[Path],
) -> str:
    same_kind = [other for other_kind, other in defined if other_kind == kind]
    other_kind = next((other_kind for other_kind, other in defined if other == name), None)
    if other_kind:
        guess = f"There is a server {name!r}, but it is one of {other_kind}."
    elif same_kind:
        guess = did_you_mean(name, same_kind)
    else:
        guess = f"No loaded config defines any of {kind}."
    # Items of a list cannot be overridden one by one, so the hint offers no override for them.
    in_list = any(isinstance(part, int) for part in path)
    override = "" if in_list else f", or set '++{join_path(path)}.name=<name>'"
    relative = f"{kind}/{name}/configs/{name}.yaml"
    config = f"`{relative}`" if find_first(relative, roots) else "the config that defines it"
    return (
        f"{path[0]!r} refers to {kind} {name!r} in {join_path(path[3:])!r}"
        f"{provenance.locate((*path, 'name'))}, but no loaded config defines it.\n{guess}\n"
        f"hint: add {config} to `config_paths`{override}"
    )
