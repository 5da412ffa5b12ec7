# SPDX-License-Identifier: Apache-2.0
"""Finds the servers of a whole config, the blocks that were meant as servers but are none, and bad references.

A server is any block outside the reserved keys that has the shape described in `server_types.py`.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from nemo_gym._config.files import first_existing
from nemo_gym._config.interpolation import ConfigValues, read_values
from nemo_gym._config.paths import KeyPath, join_path
from nemo_gym._config.problems import Problems, explain_place
from nemo_gym._config.provenance import NOWHERE, Provenance
from nemo_gym._config.reserved_keys import RESERVED_TOP_LEVEL_KEYS
from nemo_gym._config.secrets import dump_masked
from nemo_gym._config.server_types import (
    SERVER_TYPES,
    ResourcesServerInstanceConfig,
    ResponsesAPIAgentServerInstanceConfig,
    ResponsesAPIModelServerInstanceConfig,
    is_almost_server,
    server_types_in,
    validate_server_instance,
)
from nemo_gym._util.nearest import did_you_mean
from nemo_gym.errors import AlmostServerError, ServerRefNotFoundError

logger = logging.getLogger(__name__)

ServerInstance = (
    ResponsesAPIModelServerInstanceConfig | ResourcesServerInstanceConfig | ResponsesAPIAgentServerInstanceConfig
)


@dataclass
class Detected:
    """The servers of a config, and what was nearly one, with the reasons why not."""

    values: ConfigValues = field(default_factory=lambda: ConfigValues({}))
    instances: list[ServerInstance] = field(default_factory=list)
    almost: dict[str, ValidationError] = field(default_factory=dict)
    unknown_yet: set[str] = field(default_factory=set)


def detect(config: DictConfig, values: ConfigValues) -> Detected:
    """Sort the blocks of `config`. Mistakes at places whose value is missing anyway are not counted."""
    found = Detected(values)
    for name, block in values.plain.items():
        if name in RESERVED_TOP_LEVEL_KEYS or not server_types_in(block):
            continue
        try:
            found.instances.append(validate_server_instance(str(name), block, config[name]))
        except ValidationError as error:
            if all((str(name), *_location(mistake)) in values.holes for mistake in error.errors()):
                found.unknown_yet.add(str(name))
            elif is_almost_server(block):
                found.almost[str(name)] = error
    return found


def implementation_of(instance: ServerInstance) -> str:
    """Return the name of the folder that holds the code of `instance`."""
    return str(next(iter(instance.server_type_config_dict[instance.SERVER_TYPE])))


def server_instances(config: DictConfig) -> list[ServerInstance]:
    """Return the servers of a config that is complete, in the order it names them."""
    return detect(config, read_values(config)).instances


def almost_server_problems(
    config: DictConfig, detected: Detected | None = None, provenance: Provenance = NOWHERE
) -> Problems:
    """Return the almost-servers as problems, or as warnings where `error_on_almost_servers` is false."""
    problems = Problems()
    detected = detected or detect(config, read_values(config))
    for name, error in detected.almost.items():
        text = almost_server_text(name, error, provenance, config)
        if detected.values.plain.get("error_on_almost_servers", True):
            block = dump_masked(OmegaConf.masked_copy(config, name)).rstrip()
            problems.add(AlmostServerError, f"{text}\nhint: fix it, or pass `++error_on_almost_servers=false`\n{block}")
        else:
            logger.warning(text)
    return problems


def almost_server_text(
    name: str, error: ValidationError, provenance: Provenance = NOWHERE, config: DictConfig | None = None
) -> str:
    """Return why the block `name` is not a server, one line per mistake."""
    lines = [f"{name!r} looks like a server but is not a valid one, so it will not be started:"]
    for mistake in error.errors():
        path = (name, *_location(mistake))
        one = "an instance has exactly one implementation" if mistake["type"] == "too_long" else ""
        lines.append(f"  {join_path(path)}: {one or explain_place(path, [mistake])}{provenance.locate(path)}")
    return "\n".join([*lines, *_rival_definitions(name, provenance, config)])


def _location(mistake: Any) -> KeyPath:
    """Return the place in the block. Pydantic adds the tags that picked the kind of server and the kind of dataset."""
    place = list(mistake["loc"][1:])
    if "datasets" in place:
        del place[place.index("datasets") + 2 : place.index("datasets") + 3]
    return tuple(map(str, place))


def _rival_definitions(name: str, provenance: Provenance, config: DictConfig | None) -> list[str]:
    """Return the sources of both servers, when one name has been given to two."""
    block = config[name] if config is not None else {}
    rivals = [(kind, str(impl)) for kind in server_types_in(block) for impl in block[kind] or ()]
    if len(rivals) < 2:
        return []
    lines = [f"  {kind}.{impl}  ({provenance.near((name, kind, impl)) or 'unknown'})" for kind, impl in rivals]
    return [f"two servers share the name {name!r}:", *lines]


def reference_problems(detected: Detected, provenance: Provenance = NOWHERE, roots: Sequence[Path] = ()) -> Problems:
    """Report references, at any depth of a server's block, to servers that the config does not define."""
    problems, values = Problems(), detected.values
    defined = {(instance.SERVER_TYPE, instance.name) for instance in detected.instances}
    undecided = set(detected.almost) | detected.unknown_yet
    for instance in detected.instances:
        block = values.plain[instance.name][instance.SERVER_TYPE]
        for found in _references(block, (instance.name, instance.SERVER_TYPE)):
            known = (found.kind, found.target) in defined or found.target in undecided
            if not known and (*map(str, found.path), "name") not in values.holes:
                problems.add(ServerRefNotFoundError, _unknown_reference(found, defined, provenance, roots))
    return problems


@dataclass(frozen=True)
class _Reference:
    path: tuple[str | int, ...]
    kind: str
    target: str


def _references(value: Any, path: tuple[str | int, ...]) -> Iterator[_Reference]:
    if isinstance(value, dict):
        if value.get("type") in SERVER_TYPES and isinstance(value.get("name"), str):
            yield _Reference(path, value["type"], value["name"])
        for key, item in value.items():
            yield from _references(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(item, (*path, index))


def _unknown_reference(
    found: _Reference, defined: set[tuple[Any, str]], provenance: Provenance, roots: Sequence[Path]
) -> str:
    place = provenance.locate((*found.path, "name"))
    same_kind = [name for kind, name in defined if kind == found.kind]
    other_kind = next((kind for kind, name in defined if name == found.target), None)
    if other_kind:
        guess = f"There is a server {found.target!r}, but it is one of {other_kind}."
    elif same_kind:
        guess = did_you_mean(found.target, same_kind)
    else:
        guess = f"No loaded config defines any of {found.kind}."
    # Items of a list cannot be overridden one by one, so no override is offered for a reference in a list.
    in_list = any(isinstance(part, int) for part in found.path)
    override = "" if in_list else f", or set '++{join_path(found.path)}.name=<name>'"
    relative = f"{found.kind}/{found.target}/configs/{found.target}.yaml"
    config = f"`{relative}`" if first_existing(relative, roots) else "the config that defines it"
    return (
        f"{found.path[0]!r} refers to {found.kind} {found.target!r} in {join_path(found.path[3:])!r}"
        f"{place}, but no loaded config defines it.\n{guess}\n"
        f"hint: add {config} to `config_paths`{override}"
    )
