# SPDX-License-Identifier: Apache-2.0
"""Which config files there are, and the names they go by. Nothing here looks into a file."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_gym._util.server_imports import holds_code

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


def server_configs(servers: Path) -> dict[str, list[Path]]:
    """Return the configs of every server folder below `resources_servers/` and the like, in order."""
    found = {}
    for folder in sorted(servers.iterdir()) if servers.is_dir() else ():
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
        """The configs by what a selector takes: the server's own name, or `name/flavour`."""
        server, found = self.folder.name, {}
        for config in self.configs:
            flavour = config.relative_to(self.folder / "configs").with_suffix("").as_posix()
            found[server if flavour == server else f"{server}/{flavour}"] = config
        return found


def visible_roots(server_type: str, server: str, roots: Sequence[Path]) -> Sequence[Path]:
    """Return the roots that may hold configs of a server: a folder with code hides the same folder in later roots."""
    for number, root in enumerate(roots, 1):
        if holds_code(root / server_type / server):
            return roots[:number]
    return roots


def visible_servers(server_type: str, roots: Sequence[Path]) -> list[ServerConfigs]:
    """Return the server folders of all roots that no earlier one hides."""
    return [
        ServerConfigs(root / server_type / name, configs)
        for root in roots
        for name, configs in server_configs(root / server_type).items()
        if root in visible_roots(server_type, name, roots)
    ]


def flavour_names(server_type: str, roots: Sequence[Path]) -> list[str]:
    """Return all that a selector takes for servers of a type."""
    return sorted({name for server in visible_servers(server_type, roots) for name in server.names})


def hidden_folders(collection: str, names: Iterable[str], roots: Sequence[Path]) -> list[str]:
    """Say which of the folders `names` of a collection stand in several roots, so that only the first one is used."""
    hidden: dict[tuple[Path, Path], list[str]] = {}
    for name in sorted(set(names)):
        first, *others = [root for root in roots if _is_in(root / collection / name)] or [Path()]
        for other in others:
            hidden.setdefault((first, other), []).append(name)
    return [
        f"{first / collection} hides {', '.join(names)} of {other / collection}"
        for (first, other), names in hidden.items()
    ]


def _is_in(folder: Path) -> bool:
    return holds_code(folder) or (folder / "config.yaml").is_file()


def benchmark_name(config: str) -> str | None:
    """Return what `--benchmark` takes for a config below `benchmarks/`; None for any other file."""
    parts = Path(config).with_suffix("").parts
    if "benchmarks" not in parts[:-1]:
        return None
    below = parts[len(parts) - parts[::-1].index("benchmarks") :]
    return "/".join(below[:-1] if below[-1] == "config" and below[:-1] else below)
