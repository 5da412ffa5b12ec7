# SPDX-License-Identifier: Apache-2.0
"""Which config files there are, and the names they go by. Nothing here looks into a file."""

import os
from pathlib import Path

_NO_CONFIGS = frozenset({"data", "prompts", "tests", "scripts", "__pycache__"})


def config_names(collection: Path) -> dict[str, Path]:
    """The configs below `benchmarks/` or `environments/` by name, in order: a folder's own `config.yaml` goes by the
    name of the folder, any other file by its path without suffix."""
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
    """The configs of every server folder below `resources_servers/` and the like, in order."""
    found = {}
    for folder in sorted(servers.iterdir()) if servers.is_dir() else ():
        if folder.is_dir() and ((folder / "app.py").is_file() or (folder / "configs").is_dir()):
            own = f"{folder.name}.yaml"
            # The one that goes by the server's own name speaks for it.
            found[folder.name] = sorted((folder / "configs").rglob("*.yaml"), key=lambda path: (path.name != own, path))
    return found


def flavour_names(servers: Path) -> list[str]:
    """What names the config of a server: its own name, or `name/flavour`."""
    names = []
    for server, configs in server_configs(servers).items():
        for config in configs:
            flavour = config.relative_to(servers / server / "configs").with_suffix("").as_posix()
            names.append(server if flavour == server else f"{server}/{flavour}")
    return names


def benchmark_name(config: str) -> str | None:
    """What `--benchmark` takes for a config below `benchmarks/`; None for any other file."""
    parts = Path(config).with_suffix("").parts
    if "benchmarks" not in parts[:-1]:
        return None
    below = parts[len(parts) - parts[::-1].index("benchmarks") :]
    return "/".join(below[:-1] if below[-1] == "config" and below[:-1] else below)
