# SPDX-License-Identifier: Apache-2.0
"""Where each value of a config came from: which file and line, `env.yaml`, the caller, or the command line.

Error messages and `--explain` use it. It looks things up in the unmerged sources, so it costs nothing until asked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import OmegaConf

from nemo_gym._config.config_files import ConfigFile
from nemo_gym._config.config_paths import KeyPath, get_value, has_path, list_keys, split_path

DEFAULT = "default"


@dataclass(frozen=True)
class Layer:
    """One source of values, with the line of each key if it is a file."""

    name: str
    values: Any
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        return f"{self.name}:{self.lines[path]}" if path in self.lines else self.name


def make_layer(file: ConfigFile) -> Layer:
    return Layer(file.name, OmegaConf.to_container(file.config), file.lines)


@dataclass(frozen=True)
class Given:
    """What one source says: where, what, and under which path, which differs if the block was inherited."""

    place: str
    value: Any
    path: KeyPath


@dataclass
class Provenance:
    """All sources, weakest first, and which blocks were inherited or copied from where."""

    layers: Sequence[Layer] = ()
    inherited: dict[KeyPath, KeyPath] = field(default_factory=dict)

    def list_given(self, path: KeyPath) -> list["Given"]:
        """Return what every source says about `path`, weakest first; inherited values come before a block's own."""
        own = [
            Given(layer.place(path), get_value(layer.values, path), path)
            for layer in self.layers
            if has_path(layer.values, path)
        ]
        for end in range(len(path), 0, -1):
            if (source := self.inherited.get(path[:end])) is not None:
                return [*self.list_given((*source, *path[end:])), *own]
        return own

    def of(self, path: KeyPath | str) -> str:
        """Return the source whose value won, or `default` if no source gave one."""
        given = self.list_given(split_path(path) if isinstance(path, str) else path)
        return given[-1].place if given else DEFAULT

    def find_nearest(self, path: KeyPath) -> str:
        """Return the source of `path` or of the nearest enclosing block that has one; empty if none has."""
        for end in range(len(path), 0, -1):
            if given := self.list_given(path[:end]):
                return given[-1].place
        return ""

    def locate(self, path: Iterable[str | int]) -> str:
        """Return ` (place)`, to follow the name of `path` in a message; empty if no source gives it."""
        place = self.find_nearest(tuple(map(str, path)))
        return f" ({place})" if place else ""

    def explain(self, values: Any, path: KeyPath = ()) -> dict[KeyPath, str]:
        """Return the source of every leaf of `values`, the plain form of the resolved config."""
        explained: dict[KeyPath, str] = {}
        for key in list_keys(values):
            below = values.get(key) if isinstance(values, dict) else None
            if isinstance(below, dict) and below:
                explained |= self.explain(below, (*path, key))
            else:
                explained[*path, key] = self.of((*path, key))
        return explained


NOWHERE = Provenance()
