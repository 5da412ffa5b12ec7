# SPDX-License-Identifier: Apache-2.0
"""Blocks that build on other blocks: `_inherit_from`, `_copy`, `_delete_key`, `${inherit_from:a.b}`, `${copy:a.b}`.

Inheriting moves the source away, copying leaves it in place. A block's own keys are merged over the source, which may
have directives of its own. All this happens to plain data before interpolations are resolved, so they stay text.
"""

import re
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from nemo_gym._config.config_paths import (
    KeyPath,
    find_similar_paths,
    get_child,
    get_value,
    has_path,
    join_path,
    list_keys,
    remove_path,
    split_path,
)
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import NOWHERE, Provenance
from nemo_gym._config.reserved_keys import (
    COPY_KEY_NAME as COPY,
    DELETE_KEY_KEY_NAME as DELETE,
    INHERIT_FROM_KEY_NAME as INHERIT,
)
from nemo_gym._util.nearest import did_you_mean, offer
from nemo_gym.errors import InheritPathNotFoundError

_VALUE_FORM = re.compile(r"\$\{\s*(inherit_from|copy)\s*:\s*([^{}]+?)\s*\}")
_REFERENCE = re.compile(r"\$\{([^.:{}][^:{}]*)\}")


@dataclass
class DirectiveResult:
    """A config without directives: `inherited` maps each block to the block it was built on."""

    values: dict[str, Any]
    inherited: dict[KeyPath, KeyPath] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    notes: list[str] = field(default_factory=list)
    unresolved: set[str] = field(default_factory=set)


def apply_directives(values: dict[str, Any], provenance: Provenance = NOWHERE) -> DirectiveResult:
    """Carry out every directive of `values`; a block whose directive fails is left out and reported."""
    source = _drop_own_deleted_keys(values)
    replacer = _Replacer(source, provenance)
    result = {}
    for key, value in source.items():
        try:
            result[key] = replacer.replace(value, (str(key),))
        except _Unusable as problem:
            replacer.result.problems.add(InheritPathNotFoundError, str(problem))
            replacer.result.unresolved.add(str(key))
            replacer.open_sources.clear()
    for moved in replacer.moved:
        if has_path(result, moved) and isinstance(get_value(result, moved[:-1]), dict):
            remove_path(result, moved)
    replacer.result.values = {key: replacer.delete_keys(value, (str(key),)) for key, value in result.items()}
    return replacer.result


class _Unusable(Exception):
    """Why a directive cannot be carried out."""


class _Replacer:
    """Replaces directives by what they name; sources are read from the config as it was before any replacement."""

    def __init__(self, source: dict[str, Any], provenance: Provenance) -> None:
        self.source = source
        self.provenance = provenance
        self.result = DirectiveResult({})
        self.moved: list[KeyPath] = []
        self.open_sources: list[KeyPath] = []

    def replace(self, value: Any, at: KeyPath) -> Any:
        """Replace every directive in `value`, which is at the path `at`."""
        if isinstance(value, list):
            return [self.replace(item, (*at, str(index))) for index, item in enumerate(value)]
        directive = _read_directive(value)
        if directive is None:
            if not isinstance(value, dict):
                return value
            return {key: self.replace(item, (*at, str(key))) for key, item in value.items()}
        own = {}
        if isinstance(value, dict):
            kept = value.keys() - {INHERIT, COPY}
            own = {key: self.replace(item, (*at, str(key))) for key, item in value.items() if key in kept}
        return self._build_on(directive, own, at)

    def _build_on(self, directive: tuple[str, KeyPath], own: dict[str, Any], at: KeyPath) -> Any:
        kind, source = directive
        if source in self.open_sources:
            raise _Unusable(self._explain_circle(source, at))
        self.open_sources.append(source)
        base = reduce(merge_values, [self.replace(layer, source) for layer in self._find_layers(source, at)])
        self.open_sources.pop()
        if not self.open_sources:
            self.result.inherited[at] = source
        if kind == INHERIT and source not in self.moved:
            self.moved.append(source)
        if own and not isinstance(base, dict) and base != "???":
            raise _Unusable(
                f"{self._name(at)} builds on {join_path(source)!r}, which is a single value, so keys cannot be merged "
                "over it"
            )
        if not own or base == "???":
            return base
        return merge_values(self.delete_keys(base, source), own)

    def _find_layers(self, path: KeyPath, at: KeyPath) -> list[Any]:
        """Return the values that make up `path`, weakest first: what its enclosing blocks inherit, then their own."""
        layers: list[Any] = [self.source]
        for key in path:
            below: list[Any] = []
            for layer in self._flatten(layers, at):
                if isinstance(layer, dict) and key in _list_keys_to_delete(layer):
                    below = []
                if key in list_keys(layer):
                    below.append(get_child(layer, key))
            layers = below
        if not layers:
            raise _Unusable(
                f"{self._name(at)} builds on {join_path(path)!r}, which no source defines."
                f"{offer(find_similar_paths(self.source, path))}\n"
                "hint: add the config that defines it to `config_paths`"
            )
        return layers

    def _flatten(self, layers: list[Any], at: KeyPath) -> list[Any]:
        flat: list[Any] = []
        for layer in layers:
            source = None
            if directive := _read_directive(layer):
                source = directive[1]
            elif isinstance(layer, str) and (reference := _REFERENCE.fullmatch(layer)):
                source = split_path(reference[1])
            if source is not None:
                if source in self.open_sources:
                    raise _Unusable(self._explain_circle(source, at))
                self.open_sources.append(source)
                flat += self._flatten(self._find_layers(source, at), at)
                self.open_sources.pop()
            if isinstance(layer, dict | list):
                flat.append(layer)
        return flat

    def delete_keys(self, value: Any, at: KeyPath) -> Any:
        """Remove the keys that `_delete_key` still names, which came with the source."""
        if isinstance(value, list):
            return [self.delete_keys(item, (*at, str(index))) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        doomed = _list_keys_to_delete(value)
        kept = {key: item for key, item in value.items() if key != DELETE}
        for key in doomed:
            if key not in kept:
                name = f"{join_path(at)!r}{self.provenance.locate((*at, DELETE))}"
                guess = did_you_mean(key, list_keys(kept))
                self.result.notes.append(f"{name} deletes the key {key!r}, which is not there. {guess}".rstrip())
            kept.pop(key, None)
        return {key: self.delete_keys(item, (*at, str(key))) for key, item in kept.items()}

    def _explain_circle(self, source: KeyPath, at: KeyPath) -> str:
        chain = [*self.open_sources[self.open_sources.index(source) :], source]
        return f"{self._name(at)}: blocks build on each other in a circle: {' -> '.join(map(join_path, chain))}"

    def _name(self, at: KeyPath) -> str:
        return f"{join_path(at)!r}{self.provenance.locate(at)}"


def merge_values(base: Any, over: Any) -> Any:
    """Merge `over` over `base` as OmegaConf does: mappings key by key, all else replaced, but never by `???`."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: merge_values(base[key], item) if key in base else item for key, item in over.items()}}
    return base if over == "???" else over


def _read_directive(value: Any) -> tuple[str, KeyPath] | None:
    if isinstance(value, str) and (written := _VALUE_FORM.fullmatch(value.strip())):
        return (INHERIT if written[1] == "inherit_from" else COPY), split_path(written[2])
    if isinstance(value, dict):
        for kind in (INHERIT, COPY):
            if isinstance(value.get(kind), str) and value[kind] != "???":
                return kind, split_path(value[kind])
    return None


def _list_keys_to_delete(block: dict[str, Any]) -> list[str]:
    names = block.get(DELETE) or []
    listed = names.split(",") if isinstance(names, str) else [str(name) for name in names]
    return [name.strip() for name in listed if name.strip()]


def _drop_own_deleted_keys(value: Any) -> Any:
    """Drop the keys that a block both has and deletes; what is left to delete may come with its source."""
    if isinstance(value, list):
        return [_drop_own_deleted_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    doomed = _list_keys_to_delete(value)
    later = [key for key in doomed if key not in value]
    kept = {key: _drop_own_deleted_keys(item) for key, item in value.items() if key not in (*doomed, DELETE)}
    return {**kept, DELETE: later} if later else kept
