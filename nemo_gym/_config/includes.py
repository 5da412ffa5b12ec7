# SPDX-License-Identifier: Apache-2.0
"""Loads config files together with the files they include through their own `config_paths`.

An includer overrides what it includes, a later path overrides an earlier one, and each file counts once. A path is
looked up in the search roots, then beside the file that includes it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nemo_gym._config.files import ConfigFile, first_existing, load_file, similar_files
from nemo_gym._config.problems import Problems
from nemo_gym.errors import ConfigError, ConfigPathNotFoundError, MalformedConfigPathsError

logger = logging.getLogger(__name__)
_SHOWN = 3


@dataclass
class Includes:
    """Files that were loaded: `merge_order` from weakest to strongest, `paths` roots first, then what they include."""

    paths: list[str] = field(default_factory=list)
    merge_order: list[ConfigFile] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)


def load_includes(
    config_paths: Sequence[str], search_roots: Sequence[Path], asked_by: str = "config_paths"
) -> Includes:
    """Load every path and everything below it; what cannot be loaded is in `problems` of the result."""
    walk = _Walk(search_roots)
    for path in config_paths:
        walk.visit(path, asked_by, beside=None)
    discovered = sorted(walk.depths, key=lambda name: walk.depths[name])
    return Includes(discovered, walk.merge_order, walk.problems)


def read_config_paths(config: DictConfig, source: str) -> list[str]:
    """The `config_paths` of one config; raises MalformedConfigPathsError unless it is a list of strings."""
    try:
        value = config.get("config_paths")
    except OmegaConfBaseException as error:
        reason = (error.msg or str(error)).splitlines()[0]
        raise MalformedConfigPathsError(f"{source}: `config_paths` cannot be resolved: {reason}") from error
    if value is None:
        return []
    paths = OmegaConf.to_container(value, resolve=True) if isinstance(value, DictConfig | ListConfig) else value
    if isinstance(paths, list) and all(isinstance(path, str) for path in paths):
        return [str(path) for path in paths]
    raise MalformedConfigPathsError(
        f"{source}: `config_paths` must be a list of file paths, but it is {paths!r}.\n"
        "hint: write `+config_paths=[first.yaml,second.yaml]`, or a YAML list with one `- path` per line"
    )


class _Walk:
    """Depth first through the include tree."""

    def __init__(self, search_roots: Sequence[Path]) -> None:
        self.search_roots = search_roots
        self.merge_order: list[ConfigFile] = []
        self.depths: dict[str, int] = {}
        self.problems = Problems()
        self._open: list[ConfigFile] = []
        self._seen: set[Path] = set()

    def visit(self, path: str, asked_by: str, beside: Path | None) -> None:
        found = first_existing(path, [*self.search_roots, *([beside] if beside else [])])
        if found is None:
            self.problems.add(ConfigPathNotFoundError, self._not_found(path, asked_by, beside))
            return
        resolved = found.resolve()
        if any(file.path.resolve() == resolved for file in self._open):
            self.problems.add(ConfigError, self._circle(path, resolved))
        elif resolved in self._seen:
            logger.debug("config file %s, named by %s, is already loaded", path, asked_by)
        else:
            self._seen.add(resolved)
            under_a_root = first_existing(path, self.search_roots) is not None
            self.depths.setdefault(path if under_a_root else str(found), len(self._open))
            self._load(found, path)

    def _load(self, found: Path, name: str) -> None:
        try:
            file = load_file(found, name)
            included = read_config_paths(file.config, f"{name}:{file.lines.get(('config_paths',), 1)}")
        except ConfigError as error:
            self.problems.add(type(error), str(error))
            return
        self._open.append(file)
        for index, path in enumerate(included):
            line = file.lines.get(("config_paths", str(index)), file.lines[("config_paths",)])
            self.visit(path, f"{name}:{line}", beside=found.parent)
        self._open.pop()
        self.merge_order.append(file)

    def _not_found(self, path: str, asked_by: str, beside: Path | None) -> str:
        folders = [*self.search_roots, *([beside] if beside else [])]
        if (folder := next((folder / path for folder in folders if (folder / path).is_dir()), None)) is not None:
            inside = [str(Path(path, file.relative_to(folder))) for file in sorted(folder.rglob("*.yaml"))[:_SHOWN]]
            guess = f"\nhint: name a file in it, as in {' or '.join(map(repr, inside))}" if inside else ""
            return f"config file {path!r}, named by {asked_by}, is a folder: {folder}{guess}"
        if Path(path).is_absolute():
            return f"config file {path!r}, named by {asked_by}, does not exist"
        similar = similar_files(path, folders)
        looked = "\n".join(f"  - {folder / path}" for folder in dict.fromkeys(folders))
        guess = f"\nDid you mean {' or '.join(map(repr, similar))}?" if similar else ""
        return f"config file {path!r}, named by {asked_by}, was not found. Looked for:\n{looked}{guess}"

    def _circle(self, path: str, resolved: Path) -> str:
        names = [file.name for file in self._open]
        start = next(index for index, file in enumerate(self._open) if file.path.resolve() == resolved)
        return (
            f"config files include each other in a circle: {' -> '.join([*names[start:], path])}.\n"
            "hint: remove one of these from the `config_paths` of the file before it"
        )
