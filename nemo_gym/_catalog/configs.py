# SPDX-License-Identifier: Apache-2.0
"""Config files as plain data: includes merged, inherited blocks filled in, interpolations left as they are.

It is forgiving where the config system is strict: a listing shows what it can, and notes what it could not read.
Checking a config is left to `nemo_gym._config`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nemo_gym._util.server_imports import SERVER_TYPES

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DIRECTIVE = re.compile(r"\$\{\s*(?:inherit_from|copy)\s*:\s*([^{}]+?)\s*\}")
_DEEPEST = 20


@dataclass(frozen=True)
class ServerBlock:
    """One server of a config: its instance name, type and implementation, and the settings below these."""

    instance: str
    type: str
    implementation: str
    settings: Mapping[str, Any]

    @property
    def datasets(self) -> list[Mapping[str, Any]]:
        listed = self.settings.get("datasets")
        return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


class Configs:
    """The config files below some search roots, each read once. What could not be read is in `warnings`."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = roots
        self.warnings: list[str] = []
        self._files: dict[Path, dict[str, Any]] = {}

    def read(self, path: Path) -> dict[str, Any]:
        """Read one file alone; empty, with a warning, where it is not a mapping in YAML."""
        if path not in self._files:
            self._files[path] = self._load(path)
        return self._files[path]

    def merged(self, path: Path) -> dict[str, Any]:
        """Return a file merged over everything that it includes."""
        return self._merge_includes(path, ())

    def _merge_includes(self, path: Path, enclosing: tuple[Path, ...]) -> dict[str, Any]:
        own = self.read(path)
        included = own.get("config_paths")
        values: dict[str, Any] = {}
        for name in included if isinstance(included, list) else ():
            folders = (*self.roots, path.parent)
            found = next((folder / str(name) for folder in folders if (folder / str(name)).is_file()), None)
            if found is None:
                self._warn(f"{path}: includes {name!r}, which is not there")
            elif found not in enclosing:
                values = _merge(values, self._merge_includes(found, (*enclosing, path)))
        return _merge(values, own)

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            values = yaml.load(path.read_bytes(), Loader=_Loader)
        except (OSError, yaml.YAMLError) as error:
            self._warn(f"{path}: cannot be read: {' '.join(str(error).split())}")
            return {}
        if values is not None and not isinstance(values, dict):
            self._warn(f"{path}: is not a mapping of keys to values")
        return values if isinstance(values, dict) else {}

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def server_blocks(values: Mapping[str, Any]) -> Iterator[ServerBlock]:
    """Yield the servers of a config, in order, each with what it inherits."""
    for instance in values:
        block = _fill_inherited(values, str(instance))
        for kind in SERVER_TYPES:
            implementations = block.get(kind)
            for name, settings in implementations.items() if isinstance(implementations, dict) else ():
                if isinstance(settings, dict):
                    yield ServerBlock(str(instance), kind, str(name), settings)


def _fill_inherited(values: Mapping[str, Any], path: str, depth: int = 0) -> dict[str, Any]:
    """Return the block at a dotted path, over the one that it inherits from or copies."""
    block: Any = values
    for key in path.split("."):
        block = block.get(key) if isinstance(block, dict) else None
    source = _find_source(block)
    if source is None or depth > _DEEPEST:
        return block if isinstance(block, dict) else {}
    base = _fill_inherited(values, source, depth + 1)
    return _merge(base, block) if isinstance(block, dict) else base


def _find_source(block: Any) -> str | None:
    if isinstance(block, str):
        found = _DIRECTIVE.fullmatch(block)
        return found[1] if found else None
    named = (block.get("_inherit_from") or block.get("_copy")) if isinstance(block, dict) else None
    return str(named) if named else None


def _merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Merge `top` over `base` and change neither of them."""
    result = dict(base)
    for key, value in top.items():
        below = result.get(key)
        result[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result
