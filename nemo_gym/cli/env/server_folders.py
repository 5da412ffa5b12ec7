# SPDX-License-Identifier: Apache-2.0
"""Find the folders of servers in the search roots; `gym env packages` lists what is installed for one."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from nemo_gym import component_search_roots
from nemo_gym._config.command_flags import Flag
from nemo_gym._servers.installing.installers import find_uv
from nemo_gym._servers.installing.venvs import plan_venv
from nemo_gym._servers.launching.placement_plan import venv_settings
from nemo_gym._util.nearest import suggest
from nemo_gym._util.search_root_finder import COLLECTIONS, SERVER_TYPES, holds_code
from nemo_gym.cli import render
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.settings import parse_config, read_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig


@dataclass(frozen=True)
class ServerFolder:
    """The folder of a server, in the first root that has it."""

    root: Path
    kind: str
    name: str

    @property
    def folder(self) -> Path:
        return self.root / self.kind / self.name

    @property
    def entrypoint(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def has_data(self) -> bool:
        """Whether it ships example data: resources servers do, unless they are a library for others."""
        return self.kind == "resources_servers" and (self.folder / "app.py").is_file()


def list_server_folders() -> list[ServerFolder]:
    """Return every server of every root; of two with the same name, the first one found."""
    found: dict[str, ServerFolder] = {}
    for root in component_search_roots():
        for kind in SERVER_TYPES:
            for folder in sorted((root / kind).glob("*/")):
                is_server = any((folder / name).exists() for name in ("app.py", "README.md", "configs", "tests"))
                if is_server and not folder.name.startswith((".", "_")):
                    server = ServerFolder(root, kind, folder.name)
                    first = found.setdefault(server.entrypoint, server)
                    if not holds_code(first.folder) and holds_code(folder):
                        found[server.entrypoint] = server
    return [found[entrypoint] for entrypoint in sorted(found)]


def choose_server_folder(asked: str) -> ServerFolder:
    """Return the server called `asked`: `<type>/<name>`, or its name alone."""
    parts = Path(asked).parts
    if Path(asked).is_absolute() or len(parts) > 2 or ".." in parts or not parts:
        raise UsageError(
            f"{asked!r} does not name a server: a relative path with two parts is expected, such as "
            "`responses_api_agents/simple_agent`"
        )
    kinds = [parts[0]] if len(parts) == 2 else [*SERVER_TYPES, *COLLECTIONS]
    places = [ServerFolder(root, kind, parts[-1]) for root in component_search_roots() for kind in kinds]
    # A folder that only holds data or configs does not hide the server of a later root.
    for is_it in (holds_code, Path.is_dir):
        if found := next((place for place in places if is_it(place.folder)), None):
            return found
    there = [server.entrypoint if len(parts) == 2 else server.name for server in list_server_folders()]
    looked_in = ", ".join(map(str, component_search_roots()))
    raise UsageError(f"there is no server {asked!r}.{suggest(asked, there)}\nlooked in: {looked_in}")


# --- gym env packages -------------------------------------------------------------------------------------------------


class PipListConfig(BaseNeMoGymCLIConfig):
    """List the packages installed in a server's virtual environment."""

    entrypoint: str = Field(description="The relative entrypoint path to the server directory.")
    format: Annotated[
        Literal["columns", "freeze", "json"] | None, Flag("--json", kind="switch", constant="json", help="Print JSON.")
    ] = Field(default=None, description="Output format: 'columns' (default), 'freeze' or 'json'.")
    outdated: Annotated[bool, Flag()] = Field(
        default=False, description="List only packages with a newer version; asks the package registry."
    )


def packages(overrides: list[str]) -> int:
    """Print the packages; return the exit code of `uv pip list`."""
    config = parse_config(overrides, PipListConfig)
    settings = read_settings(PipListConfig, config)
    server = choose_server_folder(settings.entrypoint)
    plan = plan_venv(server.folder, venv_settings(config))
    if not plan.built:
        render.error(
            f"{server.entrypoint} has an environment of its own, which is not built yet: {plan.why}\n"
            f"hint: gym env prefetch --config {server.entrypoint}/configs/{server.name}.yaml"
        )
        return 1
    render.note(f"{server.entrypoint} runs with {plan.python}: {plan.why}")
    words = ["--format", settings.format] if settings.format else []
    words += ["--outdated"] if settings.outdated else []
    listed = subprocess.run(
        [str(find_uv()), "pip", "list", "--python", str(plan.python), "--cache-dir", config["uv_cache_dir"], *words],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    render.data(listed.stdout.rstrip())
    return listed.returncode
