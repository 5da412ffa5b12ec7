# SPDX-License-Identifier: Apache-2.0
"""Blocks that build on other blocks: `_inherit_from`, `_copy`, `_delete_key`, `${inherit_from:a.b}`, `${copy:a.b}`.

To inherit moves the source away, to copy leaves it. A block's own keys are merged over the source. Chains are
followed to their end. Works on plain data before interpolations are resolved, so these travel along as text.
"""

import re
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from nemo_gym._config.paths import KeyPath, child, join_path, keys_of, nearest_paths, split_path
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import NOWHERE, Provenance
from nemo_gym._config.reserved_keys import COPY_KEY_NAME as COPY
from nemo_gym._config.reserved_keys import DELETE_KEY_KEY_NAME as DELETE
from nemo_gym._config.reserved_keys import INHERIT_FROM_KEY_NAME as INHERIT
from nemo_gym._util.nearest import did_you_mean
from nemo_gym.errors import ConfigError, InheritPathNotFoundError

_VALUE_FORM = re.compile(r"\$\{\s*(inherit_from|copy)\s*:\s*([^{}]+?)\s*\}")
_REFERENCE = re.compile(r"\$\{([^.:{}][^:{}]*)\}")


@dataclass
class Directed:
    """A config without directives: `inherited` maps each block to the one it was built on."""

    values: dict[str, Any]
    inherited: dict[KeyPath, KeyPath] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    notes: list[str] = field(default_factory=list)
    unresolved: set[str] = field(default_factory=set)


def apply_directives(values: dict[str, Any], provenance: Provenance = NOWHERE) -> Directed:
    """Carry out every directive of `values`; a block whose directive cannot be carried out is taken out."""
    source = _drop_own_deleted_keys(values)
    swap = _Swap(source, provenance)
    result = {}
    for key, value in source.items():
        try:
            result[key] = swap.value(value, (str(key),))
        except _Unusable as problem:
            swap.done.problems.add(problem.kind, problem.text)
            swap.done.unresolved.add(str(key))
            swap.forget_open_sources()
    for moved in swap.moved:
        _pop(result, moved)
    swap.done.values = {key: swap.delete_keys(value, (str(key),)) for key, value in result.items()}
    return swap.done


class _Unusable(Exception):
    def __init__(self, kind: type[ConfigError], text: str) -> None:
        super().__init__(kind, text)
        self.kind, self.text = kind, text


class _Swap:
    """Replaces directives by what they name. Sources are read from the config as it was before any replacement."""

    def __init__(self, source: dict[str, Any], provenance: Provenance) -> None:
        self.source = source
        self.provenance = provenance
        self.done = Directed({})
        self.moved: list[KeyPath] = []
        self._open: list[KeyPath] = []

    def value(self, value: Any, at: KeyPath) -> Any:
        """Replace every directive in `value`, which stands at the path `at`."""
        if isinstance(value, list):
            return [self.value(item, (*at, str(index))) for index, item in enumerate(value)]
        directive = _directive(value)
        if not isinstance(value, dict):
            return self._build_on(directive, {}, at) if directive else value
        skipped = (INHERIT, COPY) if directive else ()
        own = {key: self.value(item, (*at, str(key))) for key, item in value.items() if key not in skipped}
        return self._build_on(directive, own, at) if directive else own

    def forget_open_sources(self) -> None:
        """Start afresh after a directive that could not be carried out."""
        self._open.clear()

    def _build_on(self, directive: tuple[str, KeyPath], own: dict[str, Any], at: KeyPath) -> Any:
        kind, source = directive
        if source in self._open:
            raise _Unusable(InheritPathNotFoundError, self._circle(source, at))
        self._open.append(source)
        # What is found below the source is reported, moved and explained where it stands, not once more per user.
        base = reduce(merged, [self.value(layer, source) for layer in self._find_layers(source, at)])
        self._open.pop()
        if not self._open:
            self.done.inherited[at] = source
        if kind == INHERIT and source not in self.moved:
            self.moved.append(source)
        if own and not isinstance(base, dict) and base != "???":
            raise _Unusable(InheritPathNotFoundError, self._no_block(source, at))
        return merged(self.delete_keys(base, source), own) if own and base != "???" else base

    def _find_layers(self, path: KeyPath, at: KeyPath) -> list[Any]:
        """Return the values that make up `path`, weakest first: what its enclosing blocks inherit, then their own."""
        layers: list[Any] = [self.source]
        for key in path:
            below: list[Any] = []
            for layer in self._flatten(layers, at):
                if isinstance(layer, dict) and key in _keys_to_delete(layer):
                    below = []
                if key in keys_of(layer):
                    below.append(child(layer, key))
            layers = below
        if not layers:
            raise _Unusable(InheritPathNotFoundError, self._not_found(path, at))
        return layers

    def _flatten(self, layers: list[Any], at: KeyPath) -> list[Any]:
        flat: list[Any] = []
        for layer in layers:
            directive = _directive(layer)
            reference = _REFERENCE.fullmatch(layer) if isinstance(layer, str) else None
            source = directive[1] if directive else split_path(reference[1]) if reference else None
            if source is not None:
                if source in self._open:
                    raise _Unusable(InheritPathNotFoundError, self._circle(source, at))
                self._open.append(source)
                flat += self._flatten(self._find_layers(source, at), at)
                self._open.pop()
            if isinstance(layer, dict | list):
                flat.append(layer)
        return flat

    def delete_keys(self, value: Any, at: KeyPath) -> Any:
        """Take out what `_delete_key` still names: keys that came with the source."""
        if isinstance(value, list):
            return [self.delete_keys(item, (*at, str(index))) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        doomed = _keys_to_delete(value)
        kept = {key: item for key, item in value.items() if key != DELETE}
        for key in doomed:
            if key not in kept:
                self._note_absent_key(key, kept, at)
            kept.pop(key, None)
        return {key: self.delete_keys(item, (*at, str(key))) for key, item in kept.items()}

    def _note_absent_key(self, key: str, kept: dict[str, Any], at: KeyPath) -> None:
        self.done.notes.append(
            f"{join_path(at)!r}{self.provenance.locate((*at, DELETE))} deletes the key {key!r}, which is not there. "
            f"{did_you_mean(key, keys_of(kept))}".rstrip()
        )

    def _not_found(self, path: KeyPath, at: KeyPath) -> str:
        close = nearest_paths(self.source, path)
        guess = f"\nDid you mean {' or '.join(map(repr, close))}?" if close else ""
        return (
            f"{join_path(at)!r}{self.provenance.locate(at)} builds on {join_path(path)!r}, which no source defines."
            f"{guess}\n"
            "hint: add the config that defines it to `config_paths`"
        )

    def _circle(self, source: KeyPath, at: KeyPath) -> str:
        chain = [join_path(path) for path in self._open[self._open.index(source) :]]
        return (
            f"{join_path(at)!r}{self.provenance.locate(at)}: blocks build on each other in a circle: "
            f"{' -> '.join([*chain, join_path(source)])}"
        )

    def _no_block(self, source: KeyPath, at: KeyPath) -> str:
        return (
            f"{join_path(at)!r}{self.provenance.locate(at)} builds on {join_path(source)!r}, which is a single value, "
            "so keys cannot be merged over it"
        )


def merged(base: Any, over: Any) -> Any:
    """Merge `over` over `base` as OmegaConf does: mappings key by key, anything else replaced, `???` gives way."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: merged(base[key], item) if key in base else item for key, item in over.items()}}
    return base if over == "???" else over


def _directive(value: Any) -> tuple[str, KeyPath] | None:
    if isinstance(value, str) and (written := _VALUE_FORM.fullmatch(value.strip())):
        return (INHERIT if written[1] == "inherit_from" else COPY), split_path(written[2])
    if isinstance(value, dict):
        for kind in (INHERIT, COPY):
            if isinstance(value.get(kind), str) and value[kind] != "???":
                return kind, split_path(value[kind])
    return None


def _keys_to_delete(block: dict[str, Any]) -> list[str]:
    names = block.get(DELETE) or []
    listed = names.split(",") if isinstance(names, str) else [str(name) for name in names]
    return [name.strip() for name in listed if name.strip()]


def _drop_own_deleted_keys(value: Any) -> Any:
    """Drop keys that a block itself has and deletes; what is left to delete may come with its source."""
    if isinstance(value, list):
        return [_drop_own_deleted_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    doomed = _keys_to_delete(value)
    later = [key for key in doomed if key not in value]
    kept = {key: _drop_own_deleted_keys(item) for key, item in value.items() if key not in (*doomed, DELETE)}
    return {**kept, DELETE: later} if later else kept


def _pop(values: Any, path: KeyPath) -> None:
    for key in path[:-1]:
        if key not in keys_of(values):
            return
        values = child(values, key)
    if isinstance(values, dict):
        values.pop(path[-1], None)
