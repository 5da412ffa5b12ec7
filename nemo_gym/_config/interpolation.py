# SPDX-License-Identifier: Apache-2.0
"""Read a config with its interpolations resolved, and find what is missing (`???`) or refers to nothing (`${...}`).

Reading raises nothing, because a hole in one server must not hide the mistakes of the others.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import (
    InterpolationKeyError,
    InterpolationToMissingValueError,
    OmegaConfBaseException,
    UnsupportedInterpolationType,
)

from nemo_gym._config.config_paths import KeyPath, find_similar_paths, join_path, split_path
from nemo_gym._config.problems import Problems, read_reason
from nemo_gym._config.provenance import NOWHERE, Provenance
from nemo_gym._util.nearest import offer
from nemo_gym.errors import ConfigInterpolationError, ConfigMissingValuesError

_ENDLESS = "Interpolation to parent node detected"
_REFERENCE = re.compile(r"\$\{([^:{}]+)\}")
_UNSET_VARIABLE = re.compile(r"Environment variable '(.+)' not found")


@dataclass
class ConfigValues:
    """A config as plain data; a value that is missing keeps its text, and its path is among the holes."""

    plain: dict[str, Any]
    missing: list[tuple[str | int, ...]] = field(default_factory=list)
    broken: dict[tuple[str | int, ...], OmegaConfBaseException] = field(default_factory=dict)
    holes: set[KeyPath] = field(default_factory=set)


def read_values(config: DictConfig) -> ConfigValues:
    """Resolve everything that can be resolved."""
    values = ConfigValues({})
    values.plain = _Reader(values).read(config, (), own=True)
    return values


class _EndlessBlock(OmegaConfBaseException):
    """A block that contains itself by way of another; OmegaConf only notices the direct case."""


class _Reader:
    def __init__(self, found: ConfigValues) -> None:
        self.found = found
        self._open: list[int] = []

    def read(self, node: Any, path: tuple[str | int, ...], *, own: bool) -> Any:
        """Read `node`; `own` is False below an interpolation, whose target reports its own mistakes."""
        if not isinstance(node, DictConfig | ListConfig):
            return node
        self._open.append(id(node))
        try:
            if isinstance(node, DictConfig):
                return {key: self._item(node, key, (*path, str(key)), own) for key in node}
            return [self._item(node, index, (*path, index), own) for index in range(len(node))]
        finally:
            self._open.pop()

    def _item(self, node: Any, key: Any, path: tuple[str | int, ...], own: bool) -> Any:
        if OmegaConf.is_missing(node, key):
            if own:
                self.found.missing.append(path)
            return self._note_hole(path, "???")
        if not OmegaConf.is_interpolation(node, key):
            return self.read(node[key], path, own=own)
        try:
            target = node[key]
            if id(target) in self._open:
                raise _EndlessBlock(_ENDLESS)
            return self.read(target, path, own=False)
        except InterpolationToMissingValueError:
            return self._note_hole(path, "???")
        except OmegaConfBaseException as error:
            if own:
                self.found.broken[path] = error
            elif isinstance(error, _EndlessBlock):
                raise  # Two blocks contain each other: the interpolation that led here reports it.
            return self._note_hole(path, node._get_node(key)._value())

    def _note_hole(self, path: tuple[str | int, ...], written: Any) -> Any:
        self.found.holes.add(tuple(map(str, path)))
        return written


def check_missing_values(values: ConfigValues, provenance: Provenance = NOWHERE) -> Problems:
    """Report every `???` that is left, as one problem."""
    problems = Problems()
    if values.missing:
        listed = "\n".join(f"  {join_path(path)}{provenance.locate(path)}" for path in values.missing)
        samples = " ".join(f"'++{join_path(path)}=<value>'" for path in values.missing if not _in_list(path))
        hint = f"\nhint: set them in env.yaml or on the command line: {samples}" if samples else ""
        count = len(values.missing)
        problems.add(
            ConfigMissingValuesError,
            f"{count} mandatory value{'s are' if count > 1 else ' is'} missing (`???`):\n{listed}{hint}",
        )
    return problems


def check_interpolations(config: DictConfig, values: ConfigValues, provenance: Provenance = NOWHERE) -> Problems:
    """Report each missing key that is referred to, each circle, and every other interpolation that fails."""
    problems = Problems()
    users: dict[str, list[str]] = {}
    for path, error in values.broken.items():
        user = f"{join_path(path)!r}{provenance.locate(path)}"
        message = read_reason(error)
        if isinstance(error, InterpolationKeyError) and (absent := re.search(r"key '(.+)' not found", message)):
            users.setdefault(absent[1], []).append(user)
        elif message in (_ENDLESS, "Recursive interpolation detected"):
            chain = " -> ".join(_find_circle(config, [join_path(path)])) or user
            text = f"interpolations form a circle: {chain}.\nhint: give one of these keys a value of its own"
            problems.add(ConfigInterpolationError, text)
        else:
            problems.add(ConfigInterpolationError, _explain_failure(user, _read_text(config, path), message, error))
    for absent_key, referring in users.items():
        problems.add(ConfigInterpolationError, _explain_absent_key(absent_key, referring, values.plain))
    return problems


def find_unset_variables(values: ConfigValues) -> list[tuple[str | int, ...]]:
    """Return the paths of the values that need an environment variable that is not set."""
    return [path for path, error in values.broken.items() if _UNSET_VARIABLE.search(error.msg or str(error))]


def _explain_absent_key(key: str, users: list[str], known: Mapping[str, Any]) -> str:
    guess = offer(find_similar_paths(known, split_path(key)))
    one = len(users) == 1
    where = f"{users[0]} refers" if one else f"{len(users)} keys refer"
    listed = "" if one else "".join(f"\n  {user}" for user in users)
    hint = f"hint: set it in env.yaml or on the command line: '++{key}=<value>'"
    return f"{where} to `${{{key}}}`, but no source gives {key!r} a value.{guess}{listed}\n{hint}"


def _explain_failure(user: str, written: str, message: str, error: OmegaConfBaseException) -> str:
    if variable := _UNSET_VARIABLE.search(message):
        return (
            f"{user} reads the environment variable {variable[1]!r}, which is not set.\n"
            f"hint: set it, or give a default: `${{oc.env:{variable[1]},<default>}}`"
        )
    if isinstance(error, UnsupportedInterpolationType):
        known = "oc.env, oc.select, oc.decode, oc.create, inherit_from, copy"
        return f"{user} is {written}, but there is no such resolver.\nhint: common ones are {known}"
    return f"{user} is {written}, which cannot be resolved: {message}"


def _find_circle(config: DictConfig, chain: list[str]) -> list[str]:
    """Follow the references from the end of `chain` until one repeats; the smallest key of the circle comes first."""
    for reference in _REFERENCE.findall(_read_text(config, split_path(chain[-1]), below=True)):
        enclosing = next((key for key in chain if key == reference or key.startswith(f"{reference}.")), None)
        if enclosing is not None:
            members = chain[chain.index(enclosing) :]
            first = members.index(min(members))
            members = members[first:] + members[:first]
            return [*members, members[0] if len(members) > 1 else reference]
        if circle := _find_circle(config, [*chain, reference]):
            return circle
    return []


def _read_text(config: DictConfig, path: tuple[str | int, ...], *, below: bool = False) -> str:
    """Return the text at `path` with interpolations unresolved; `below` also takes the text of a block."""
    node: Any = config
    for key in path:
        if not isinstance(node, DictConfig | ListConfig) or node._is_interpolation():
            return ""
        node = node._get_node(int(key)) if isinstance(node, ListConfig) else node._get_node(key)
    value = node._value() if node is not None else ""
    if isinstance(value, str):
        return value
    return OmegaConf.to_yaml(node) if below and isinstance(node, DictConfig | ListConfig) else ""


def _in_list(path: tuple[str | int, ...]) -> bool:
    return any(isinstance(part, int) for part in path)
