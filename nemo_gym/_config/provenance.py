# SPDX-License-Identifier: Apache-2.0
"""Where each value of a config came from: which file and line, `env.yaml`, the caller, or the command line.

Used in error messages and to explain a resolved config. It looks things up in the unmerged sources, so it costs
nothing until it is asked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import OmegaConf

from nemo_gym._config.files import ConfigFile
from nemo_gym._config.paths import KeyPath, has_path, keys_of, split_path, value_at

DEFAULT = "default"


@dataclass(frozen=True)
class Layer:
    """One source of values, with the line of each key where there are lines."""

    name: str
    values: Any
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        return f"{self.name}:{self.lines[path]}" if path in self.lines else self.name


def file_layer(file: ConfigFile) -> Layer:
    return Layer(file.name, OmegaConf.to_container(file.config), file.lines)


@dataclass(frozen=True)
class Given:
    """What one source says: where, what, and under which path, which is another one where a block was inherited."""

    place: str
    value: Any
    path: KeyPath


@dataclass
class Provenance:
    """All sources, weakest first, and which blocks were inherited or copied from where."""

    layers: Sequence[Layer] = ()
    inherited: dict[KeyPath, KeyPath] = field(default_factory=dict)

    def given(self, path: KeyPath) -> list["Given"]:
        """Return what every source says about `path`, weakest first; inherited ones before a block's own."""
        own = [
            Given(layer.place(path), value_at(layer.values, path), path)
            for layer in self.layers
            if has_path(layer.values, path)
        ]
        for end in range(len(path), 0, -1):
            if (source := self.inherited.get(path[:end])) is not None:
                return [*self.given((*source, *path[end:])), *own]
        return own

    def places(self, path: KeyPath) -> list[str]:
        """Return every source that gives `path` a value, weakest first."""
        return [one.place for one in self.given(path)]

    def of(self, path: KeyPath | str) -> str:
        """Return the source whose value won, or `default` for a value that none of them gave."""
        places = self.places(split_path(path) if isinstance(path, str) else path)
        return places[-1] if places else DEFAULT

    def near(self, path: KeyPath) -> str:
        """Return what `of` does, or the place of the nearest enclosing block; empty when there is none."""
        for end in range(len(path), 0, -1):
            if places := self.places(path[:end]):
                return places[-1]
        return ""

    def locate(self, path: Iterable[str | int]) -> str:
        """Return ` (place)` to stand behind the name of `path` in a message; empty when no source speaks of it."""
        place = self.near(tuple(map(str, path)))
        return f" ({place})" if place else ""

    def explain(self, values: Any, path: KeyPath = ()) -> dict[KeyPath, str]:
        """Return the source of every leaf of `values`, the plain form of the resolved config."""
        explained: dict[KeyPath, str] = {}
        for key in keys_of(values):
            below = values[key] if isinstance(values, dict) and key in values else None
            if isinstance(values, dict) and isinstance(below, dict) and below:
                explained |= self.explain(below, (*path, key))
            else:
                explained[*path, key] = self.of((*path, key))
        return explained


NOWHERE = Provenance()
