# SPDX-License-Identifier: Apache-2.0
"""Reads one YAML file as OmegaConf would, and remembers the line of every key for later messages.

Unlike OmegaConf's own loader it accepts a nested key that is repeated with the same value, and says where a file is
wrong. Including other files is left to `includes.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from nemo_gym._config.paths import KeyPath, join_path, split_path
from nemo_gym._util.nearest import nearest
from nemo_gym.errors import ConfigError


@dataclass(frozen=True)
class ConfigFile:
    """A config file: `name` is how the user wrote its path, `lines` has the line of each key in it."""

    name: str
    path: Path
    config: DictConfig
    lines: Mapping[KeyPath, int]


def load_file(path: Path, name: str | None = None) -> ConfigFile:
    """Read `path`; raises ConfigError with file, line and column of what cannot be read."""
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
    _drop_repeated_keys(name, root, ())
    return ConfigFile(name, path, _build(name, text, root, lines), lines)


def first_existing(relative: str | Path, folders: Iterable[Path]) -> Path | None:
    """The first of `folders` that holds the file `relative`; an absolute path stands for itself."""
    return next((folder / relative for folder in folders if (folder / relative).is_file()), None)


def similar_files(relative: str, folders: Sequence[Path]) -> list[str]:
    """Existing files or folders that `relative` may have been meant to name."""
    for folder in folders:
        parts = Path(relative).parts
        for depth, part in enumerate(parts):
            here = folder.joinpath(*parts[:depth])
            if not here.is_dir():
                break
            if not (here / part).exists():
                if matches := nearest(part, _names_in(here)):
                    return [_completed(folder, parts, depth, match) for match in matches]
                break
    return []


def _names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.is_dir() or entry.suffix in (".yaml", ".yml")]


def _completed(folder: Path, parts: Sequence[str], depth: int, match: str) -> str:
    """The rest of the path too, where it exists: a server's folder and its config often share the misspelt name."""
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
        raise ConfigError(_yaml_problem(name, text, error)) from error
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
        raise ConfigError(_yaml_problem(name, text, error)) from error
    except OmegaConfBaseException as error:
        path = split_path(error.full_key or "")
        line = next((f":{lines[path[:end]]}" for end in range(len(path), 0, -1) if path[:end] in lines), "")
        reason = (error.msg or str(error)).splitlines()[0]
        raise ConfigError(f"{name}{line}: the value of {join_path(path)!r} cannot be used: {reason}") from error


def _yaml_problem(name: str, text: str, error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or (mark := error.problem_mark or error.context_mark) is None:
        return f"{name}: not valid YAML: {' '.join(str(error).split())}"
    source = text.splitlines()[mark.line : mark.line + 1]
    shown = "".join(f"\n    {line}\n    {' ' * mark.column}^" for line in source)
    begin = error.context_mark
    context = f" ({error.context} that begins at line {begin.line + 1})" if error.context and begin else ""
    problem = error.problem or "cannot be read"
    return f"{name}:{mark.line + 1}:{mark.column + 1}: not valid YAML: {problem}{context}{shown}"


def _drop_repeated_keys(name: str, node: yaml.Node, path: KeyPath) -> None:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _drop_repeated_keys(name, item, (*path, str(index)))
    if not isinstance(node, yaml.MappingNode):
        return
    kept: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key, value in node.value:
        # Merge keys (`<<`) may repeat; a key that is no scalar is left to the constructor's own error.
        identity = key.value if isinstance(key, yaml.ScalarNode) and key.value != "<<" else f"<{id(key)}>"
        if identity in kept and (not path or yaml.serialize(kept[identity][1]) != yaml.serialize(value)):
            raise ConfigError(_repeated_key(name, (*path, identity), kept[identity][0], key))
        kept[identity] = (key, value)
        if not isinstance(value, yaml.ScalarNode):
            _drop_repeated_keys(name, value, (*path, identity))
    node.value = list(kept.values())


def _repeated_key(name: str, path: KeyPath, first: yaml.Node, second: yaml.Node) -> str:
    lines = f"on lines {first.start_mark.line + 1} and {second.start_mark.line + 1}"
    if len(path) == 1:
        return (
            f"{name}:{second.start_mark.line + 1}: {path[0]!r} is defined twice, {lines}: two servers of one name, or "
            "one key given twice.\nhint: rename one of them, or merge the two blocks"
        )
    return f"{name}:{second.start_mark.line + 1}: {join_path(path)!r} is given two different values, {lines}"


def _index_lines(name: str, node: Any, path: KeyPath, lines: dict[KeyPath, int], enclosing: set[int]) -> None:
    if id(node) in enclosing:
        line = lines.get(path, node.start_mark.line + 1)
        raise ConfigError(f"{name}:{line}: {join_path(path)!r} is an alias of a block that contains it")
    if isinstance(node, yaml.MappingNode):
        below = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    elif isinstance(node, yaml.SequenceNode):
        below = [(str(index), item, item) for index, item in enumerate(node.value)]
    else:
        return
    for key, place, value in below:
        lines.setdefault((*path, key), place.start_mark.line + 1)
        _index_lines(name, value, (*path, key), lines, enclosing | {id(node)})
