# SPDX-License-Identifier: Apache-2.0
"""Which config files there are and the names they go by; their content as plain data.

Includes are merged, inherited blocks filled in, interpolations left as they are. It is forgiving where the config
system is strict: a listing shows what it can, and notes what it could not read. Checking a config is left to
`nemo_gym._config`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym._util.search_root_finder import SERVER_TYPES, holds_code

_DIRECTIVE = re.compile(r"\$\{\s*(?:inherit_from|copy)\s*:\s*([^{}]+?)\s*\}")
_REFERENCE = re.compile(r"\$\{([\w.-]+)\}")
_DEEPEST = 20
_NO_CONFIGS = frozenset({"data", "prompts", "tests", "scripts", "__pycache__"})


def config_names(collection: Path) -> dict[str, Path]:
    """Return the configs below `benchmarks/` or `environments/` by name, in order.

    A folder's own `config.yaml` goes by the name of the folder, any other file by its path without suffix.
    """
    found: dict[str, Path] = {}
    for folder, subfolders, files in os.walk(collection):
        subfolders[:] = sorted(name for name in subfolders if name not in _NO_CONFIGS and not name.startswith("."))
        if (here := Path(folder)) == collection:
            continue
        name = here.relative_to(collection).as_posix()
        for file in sorted(files):
            if file == "config.yaml":
                found[name] = here / file
            elif file.endswith(".yaml") and file not in ("manifest.yaml", "prompt.yaml", "env.yaml"):
                found.setdefault(f"{name}/{file.removesuffix('.yaml')}", here / file)
    return found


def follow_references(value: Any, values: Mapping[str, Any]) -> Any:
    """Return what `value` stands for if it is a reference to a key of `values`, as in `${repeats.${protocol}}`.

    A reference that leads nowhere stays as it is.
    """
    for _ in range(_DEEPEST):
        if not isinstance(value, str) or (reference := _REFERENCE.search(value)) is None:
            return value
        target: Any = values
        for key in reference[1].split("."):
            if not isinstance(target, Mapping) or target.get(key) is None:
                return value
            target = target[key]
        if value == reference[0]:
            value = target
        else:
            value = value.replace(reference[0], str(target))
    return value


def find_server_configs(servers: Path) -> dict[str, list[Path]]:
    """Return the configs of every server folder below `resources_servers/` and the like, in order."""
    found: dict[str, list[Path]] = {}
    if not servers.is_dir():
        return found
    for folder in sorted(servers.iterdir()):
        if folder.is_dir() and ((folder / "app.py").is_file() or (folder / "configs").is_dir()):
            own = f"{folder.name}.yaml"
            # The one that goes by the server's own name speaks for it.
            found[folder.name] = sorted((folder / "configs").rglob("*.yaml"), key=lambda path: (path.name != own, path))
    return found


@dataclass(frozen=True)
class ServerConfigs:
    """A server folder, and its configs in order."""

    folder: Path
    configs: list[Path]

    @property
    def names(self) -> dict[str, Path]:
        """The configs by what a selector takes: the server's own name, or `name/flavor`."""
        server = self.folder.name
        found = {}
        for config in self.configs:
            flavor = config.relative_to(self.folder / "configs").with_suffix("").as_posix()
            found[server if flavor == server else f"{server}/{flavor}"] = config
        return found


def visible_roots(server_type: str, server: str, roots: Sequence[Path]) -> Sequence[Path]:
    """Return the roots that may hold configs of a server: a folder with code hides the same folder in later roots."""
    for number, root in enumerate(roots, 1):
        if holds_code(root / server_type / server):
            return roots[:number]
    return roots


def list_visible_servers(server_type: str, roots: Sequence[Path]) -> list[ServerConfigs]:
    """Return the server folders of all roots that no earlier one hides."""
    return [
        ServerConfigs(root / server_type / name, configs)
        for root in roots
        for name, configs in find_server_configs(root / server_type).items()
        if root in visible_roots(server_type, name, roots)
    ]


def flavor_names(server_type: str, roots: Sequence[Path]) -> list[str]:
    """Return all that a selector takes for servers of a type."""
    return sorted({name for server in list_visible_servers(server_type, roots) for name in server.names})


def describe_hidden_folders(collection: str, names: Iterable[str], roots: Sequence[Path]) -> list[str]:
    """Say which of the folders `names` of a collection stand in several roots, so that only the first one is used."""
    hidden: dict[tuple[Path, Path], list[str]] = {}
    for name in sorted(set(names)):
        folders = {root: root / collection / name for root in roots}
        holders = [root for root, at in folders.items() if holds_code(at) or (at / "config.yaml").is_file()]
        first, *others = holders or [Path()]
        for other in others:
            hidden.setdefault((first, other), []).append(name)
    return [
        f"{first / collection} hides {', '.join(names)} of {other / collection}"
        for (first, other), names in hidden.items()
    ]


def name_benchmark(config: str) -> str | None:
    """Return what `--benchmark` takes for a config below `benchmarks/`; None for any other file."""
    parts = Path(config).with_suffix("").parts
    if "benchmarks" not in parts[:-1]:
        return None
    below = parts[len(parts) - parts[::-1].index("benchmarks") :]
    if len(below) > 1 and below[-1] == "config":
        below = below[:-1]
    return "/".join(below)


# --- what is in them --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServerBlock:
    """One server of a config: its instance name, type and implementation, and the settings below these."""

    instance: str
    type: str
    implementation: str
    settings: Mapping[str, Any]

    @property
    def datasets(self) -> list[Mapping[str, Any]]:
        return [one for one in _as_list(self.settings.get("datasets")) if isinstance(one, dict)]


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

    def merge(self, path: Path) -> dict[str, Any]:
        """Return a file merged over everything that it includes."""
        return self._merge_includes(path, ())

    def _merge_includes(self, path: Path, enclosing: tuple[Path, ...]) -> dict[str, Any]:
        own = self.read(path)
        values: dict[str, Any] = {}
        for name in _as_list(own.get("config_paths")):
            folders = (*self.roots, path.parent)
            found = next((folder / str(name) for folder in folders if (folder / str(name)).is_file()), None)
            if found is None:
                self._warn(f"{path}: includes {name!r}, which is not there")
            elif found not in enclosing:
                values = _merge(values, self._merge_includes(found, (*enclosing, path)))
        return _merge(values, own)

    def _load(self, path: Path) -> dict[str, Any]:
        import yaml  # here, because completing a command line takes only names and is to be quick

        try:
            values = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, yaml.YAMLError) as error:
            self._warn(f"{path}: cannot be read: {' '.join(str(error).split())}")
            return {}
        if values is not None and not isinstance(values, dict):
            self._warn(f"{path}: is not a mapping of keys to values")
        return _as_mapping(values)

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def iter_server_blocks(values: Mapping[str, Any]) -> Iterator[ServerBlock]:
    """Yield the servers of a config, in order, each with what it inherits."""
    for instance in values:
        block = _fill_inherited(values, str(instance))
        for kind in SERVER_TYPES:
            for name, settings in _as_mapping(block.get(kind)).items():
                if isinstance(settings, dict):
                    yield ServerBlock(str(instance), kind, str(name), settings)


def _fill_inherited(values: Mapping[str, Any], path: str, depth: int = 0) -> dict[str, Any]:
    """Return the block at a dotted path, over the one that it inherits from or copies."""
    block: Any = values
    for key in path.split("."):
        block = _as_mapping(block).get(key)
    own = _as_mapping(block)
    source = _find_source(block)
    if source is None or depth > _DEEPEST:
        return own
    return _merge(_fill_inherited(values, source, depth + 1), own)


def _find_source(block: Any) -> str | None:
    if isinstance(block, str):
        found = _DIRECTIVE.fullmatch(block)
        return found[1] if found else None
    own = _as_mapping(block)
    named = own.get("_inherit_from") or own.get("_copy")
    return str(named) if named else None


def _as_mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is a mapping, else an empty one: files may hold anything anywhere."""
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Merge `top` over `base` and change neither of them."""
    result = dict(base)
    for key, value in top.items():
        below = result.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merge(below, value)
        result[key] = value
    return result
