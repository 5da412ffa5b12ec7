# SPDX-License-Identifier: Apache-2.0
"""Read YAML files as OmegaConf would, with the line of every key, and the files that they include.

Unlike OmegaConf's own loader, this one accepts a nested key that is repeated with the same value, and says where a file
is wrong. A file includes others through its `config_paths`: an including file overrides what it includes, a later path
overrides an earlier one, and each file counts once. A path is looked up in the search roots, then beside the file that
includes it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from nemo_gym._config.config_paths import KeyPath, join_path, split_path
from nemo_gym._config.problems import Problems, read_reason
from nemo_gym._util.nearest import nearest
from nemo_gym.errors import ConfigError, ConfigPathNotFoundError, MalformedConfigPathsError


@dataclass(frozen=True)
class ConfigFile:
    """A config file: `name` is how the user wrote its path, `lines` has the line of each key in it."""

    name: str
    path: Path
    config: DictConfig
    lines: Mapping[KeyPath, int]


def load_file(path: Path, name: str | None = None) -> ConfigFile:
    """Read `path`; raise ConfigError with the file, line and column of what cannot be read."""
    name = name or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not a text file: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    root = _compose(name, text)
    lines: dict[KeyPath, int] = {}
    _index_lines(name, root, (), lines, set())
    return ConfigFile(name, path, _build(name, text, root, lines), lines)


def find_first(relative: str | Path, folders: Iterable[Path]) -> Path | None:
    """Return the file `relative` in the first of `folders` that holds it; an absolute path stands for itself."""
    return next((folder / relative for folder in folders if (folder / relative).is_file()), None)


def find_similar_files(relative: str, folders: Sequence[Path]) -> list[str]:
    """Return existing files or folders that `relative` was probably meant to name."""
    for folder in folders:
        parts = Path(relative).parts
        for depth, part in enumerate(parts):
            here = folder.joinpath(*parts[:depth])
            if not here.is_dir():
                break
            if not (here / part).exists():
                names = [item.name for item in here.iterdir() if item.is_dir() or item.suffix in (".yaml", ".yml")]
                if matches := nearest(part, names):
                    return [_complete_path(folder, parts, depth, match) for match in matches]
                break
    return []


def _complete_path(folder: Path, parts: Sequence[str], depth: int, match: str) -> str:
    """Complete the path if the result exists: a server's folder and its config often share the misspelled name."""
    found = Path(*parts[:depth], match)
    for rest in (parts[depth + 1 :], [part.replace(parts[depth], match) for part in parts[depth + 1 :]]):
        if (folder / found.joinpath(*rest)).exists():
            return str(found.joinpath(*rest))
    return str(found)


def _compose(name: str, text: str) -> yaml.MappingNode:
    try:
        loader = get_yaml_loader()(text)
        root = loader.get_single_node()
    except yaml.YAMLError as error:
        raise ConfigError(_explain_yaml_error(name, text, error)) from error
    if root is None or (isinstance(root, yaml.ScalarNode) and root.value in ("", "null", "~")):
        return yaml.MappingNode("tag:yaml.org,2002:map", [])
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            f"{name}:{root.start_mark.line + 1}: a config is a mapping of keys to values, but this is "
            f"{'a list' if isinstance(root, yaml.SequenceNode) else 'a single value'}"
        )
    return root


def _build(name: str, text: str, root: yaml.MappingNode, lines: Mapping[KeyPath, int]) -> DictConfig:
    try:
        return OmegaConf.create(get_yaml_loader()("").construct_document(root) or {})
    except yaml.YAMLError as error:
        raise ConfigError(_explain_yaml_error(name, text, error)) from error
    except OmegaConfBaseException as error:
        path = split_path(error.full_key or "")
        line = next((f":{lines[path[:end]]}" for end in range(len(path), 0, -1) if path[:end] in lines), "")
        text = f"{name}{line}: the value of {join_path(path)!r} cannot be used: {read_reason(error)}"
        raise ConfigError(text) from error


def _explain_yaml_error(name: str, text: str, error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or (mark := error.problem_mark or error.context_mark) is None:
        return f"{name}: not valid YAML: {' '.join(str(error).split())}"
    source = text.splitlines()[mark.line : mark.line + 1]
    shown = "".join(f"\n    {line}\n    {' ' * mark.column}^" for line in source)
    begin = error.context_mark
    context = f" ({error.context} that begins at line {begin.line + 1})" if error.context and begin else ""
    problem = error.problem or "cannot be read"
    return f"{name}:{mark.line + 1}:{mark.column + 1}: not valid YAML: {problem}{context}{shown}"


def _explain_repeated_key(name: str, path: KeyPath, first: yaml.Node, second: yaml.Node) -> str:
    lines = f"on lines {first.start_mark.line + 1} and {second.start_mark.line + 1}"
    if len(path) == 1:
        return (
            f"{name}:{second.start_mark.line + 1}: {path[0]!r} is defined twice, {lines}: two servers of one name, or "
            "one key given twice.\nhint: rename one of them, or merge the two blocks"
        )
    return f"{name}:{second.start_mark.line + 1}: {join_path(path)!r} is given two different values, {lines}"


def _index_lines(name: str, node: Any, path: KeyPath, lines: dict[KeyPath, int], enclosing: set[int]) -> None:
    """Note the line of every key below `node`, and drop nested keys that repeat with the same value."""
    if id(node) in enclosing:
        line = lines.get(path, node.start_mark.line + 1)
        raise ConfigError(f"{name}:{line}: {join_path(path)!r} is an alias of a block that contains it")
    if isinstance(node, yaml.MappingNode):
        kept: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            # Merge keys (`<<`) may repeat; a key that is not a scalar is left to the constructor to refuse.
            identity = key.value if isinstance(key, yaml.ScalarNode) and key.value != "<<" else f"<{id(key)}>"
            first, same = kept.setdefault(identity, (key, value))
            if first is not key and (not path or yaml.serialize(same) != yaml.serialize(value)):
                raise ConfigError(_explain_repeated_key(name, (*path, identity), first, key))
        node.value = list(kept.values())
        below = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    elif isinstance(node, yaml.SequenceNode):
        below = [(str(index), item, item) for index, item in enumerate(node.value)]
    else:
        return
    for key, place, value in below:
        lines.setdefault((*path, key), place.start_mark.line + 1)
        _index_lines(name, value, (*path, key), lines, enclosing | {id(node)})


# --- includes ---------------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)
_SHOWN = 3


@dataclass
class Includes:
    """The loaded files: `merge_order` from weakest to strongest, `paths` with the roots before what they include."""

    paths: list[str] = field(default_factory=list)
    merge_order: list[ConfigFile] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)


def load_includes(
    config_paths: Sequence[str], search_roots: Sequence[Path], asked_by: str = "config_paths"
) -> Includes:
    """Load every path and all it includes; the result's `problems` list what cannot be loaded."""
    walk = _Walk(search_roots)
    for path in config_paths:
        walk.visit(path, asked_by, beside=None)
    discovered = sorted(walk.depths, key=lambda name: walk.depths[name])
    return Includes(discovered, walk.merge_order, walk.problems)


def read_config_paths(config: DictConfig, source: str) -> list[str]:
    """Return the `config_paths` of one config; raise MalformedConfigPathsError unless it is a list of strings."""
    try:
        value = config.get("config_paths")
    except OmegaConfBaseException as error:
        raise MalformedConfigPathsError(f"{source}: `config_paths` cannot be resolved: {read_reason(error)}") from error
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
    """Visits the include tree depth first."""

    def __init__(self, search_roots: Sequence[Path]) -> None:
        self.search_roots = search_roots
        self.merge_order: list[ConfigFile] = []
        self.depths: dict[str, int] = {}
        self.problems = Problems()
        self._open: list[ConfigFile] = []
        self._seen: set[Path] = set()

    def visit(self, path: str, asked_by: str, beside: Path | None) -> None:
        found = find_first(path, [*self.search_roots, *([beside] if beside else [])])
        if found is None:
            self.problems.add(ConfigPathNotFoundError, self._explain_missing_file(path, asked_by, beside))
            return
        resolved = found.resolve()
        if any(file.path.resolve() == resolved for file in self._open):
            self.problems.add(ConfigError, self._explain_circle(path, resolved))
        elif resolved in self._seen:
            logger.debug("config file %s, named by %s, is already loaded", path, asked_by)
        else:
            self._seen.add(resolved)
            under_a_root = find_first(path, self.search_roots) is not None
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

    def _explain_missing_file(self, path: str, asked_by: str, beside: Path | None) -> str:
        folders = [*self.search_roots, *([beside] if beside else [])]
        if (folder := next((folder / path for folder in folders if (folder / path).is_dir()), None)) is not None:
            inside = [str(Path(path, file.relative_to(folder))) for file in sorted(folder.rglob("*.yaml"))[:_SHOWN]]
            guess = f"\nhint: name a file in it, as in {' or '.join(map(repr, inside))}" if inside else ""
            return f"config file {path!r}, named by {asked_by}, is a folder: {folder}{guess}"
        if Path(path).is_absolute():
            return f"config file {path!r}, named by {asked_by}, does not exist. Looked for:\n  - {path}"
        similar = find_similar_files(path, folders)
        looked = "\n".join(f"  - {folder / path}" for folder in dict.fromkeys(folders))
        guess = f"\nDid you mean {' or '.join(map(repr, similar))}?" if similar else ""
        return f"config file {path!r}, named by {asked_by}, was not found. Looked for:\n{looked}{guess}"

    def _explain_circle(self, path: str, resolved: Path) -> str:
        names = [file.name for file in self._open]
        start = next(index for index, file in enumerate(self._open) if file.path.resolve() == resolved)
        return (
            f"config files include each other in a circle: {' -> '.join([*names[start:], path])}.\n"
            "hint: remove one of these from the `config_paths` of the file before it"
        )
