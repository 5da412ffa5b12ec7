# SPDX-License-Identifier: Apache-2.0
"""Where each server of a run is to run: in this process, in one of its own, or already somewhere else."""

import ast
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from nemo_gym._serving.venvs import VenvPlan
from nemo_gym._util.nearest import did_you_mean
from nemo_gym.errors import ConfigError

Placement = Literal["inline", "process", "external"]
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)


@dataclass(frozen=True)
class ServerPlan:
    """One server and where it is to run."""

    name: str
    server_type: str
    impl: str
    folder: Path
    entrypoint: str
    host: str
    port: int
    placement: Placement
    why: str
    """Why it runs there."""
    venv: VenvPlan | None = None
    """The interpreter of a server that this run starts; None for an external one."""
    uses_ray: bool = False
    """Whether its code imports Ray."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def choose_placement(
    name: str, block: Mapping[str, Any], default: str | None, entrypoint: Path, venv: VenvPlan
) -> tuple[Placement, str]:
    """The placement of a server and the reason for it."""
    asked = block.get("placement") or default
    if asked == "ray":
        raise ConfigError(
            f"server {name!r} asks for the placement 'ray', which this version does not have.\n"
            "hint: use 'process' on this machine, or run it elsewhere and set `external: true` with its host and port"
        )
    if asked is not None and asked not in PLACEMENTS:
        raise ConfigError(
            f"server {name!r} asks for the placement {asked!r}, which does not exist. "
            f"{did_you_mean(str(asked), list(PLACEMENTS))}"
        )
    needs = _needs_process(block, venv)
    if asked == "inline" and needs is not None:
        raise ConfigError(f"server {name!r} asks for the placement 'inline', but it {needs}.\nhint: use 'process'")
    if asked in ("inline", "process"):
        return ("inline" if asked == "inline" else "process"), "the config asks for it"
    if needs is None and (neighbour := _bare_neighbour(entrypoint)):
        # Two servers in one process cannot both have a module `utils`.
        needs = f"imports {neighbour!r}, which lies beside it, by its bare name"
    return ("process", f"it {needs}") if needs else ("inline", "this environment has all it needs")


def _needs_process(block: Mapping[str, Any], venv: VenvPlan) -> str | None:
    if (block.get("num_workers") or 1) > 1:
        return f"has {block['num_workers']} workers"
    if venv.python != Path(sys.executable):
        return f"has an environment of its own: {venv.why}"
    return None


def imports_package(folder: Path, package: str) -> bool:
    """Whether the code in `folder` imports `package`; tests do not count."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in ("tests", "data") and not name.startswith((".", "__"))]
        for path in (Path(place, name) for name in files if name.endswith(".py")):
            if package in path.read_text(encoding="utf-8", errors="replace") and package in _imported_names(path):
                return True
    return False


def _bare_neighbour(entrypoint: Path) -> str | None:
    """The first module beside `entrypoint` that it imports as if it were installed."""
    for name in _imported_names(entrypoint):
        beside = entrypoint.parent / name
        if beside.with_suffix(".py").is_file() or (beside / "__init__.py").is_file():
            return name
    return None


def _imported_names(path: Path) -> list[str]:
    """The top-level names of all absolute imports of a file, in their order."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:
        return []  # importing it will say so, with file and line
    modules = list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.append(node.module)
    return [module.partition(".")[0] for module in modules]
