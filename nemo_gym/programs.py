# SPDX-License-Identifier: Apache-2.0
"""Programs that agents run, such as Codex: how they are installed, and where.

Each set of packages is installed once, into the cache folder, by the first rollout that needs it or by
`gym env prefetch`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import CACHE_DIR
from nemo_gym._servers.installing import program_store
from nemo_gym._servers.installing.program_store import (
    InstalledProgram as InstalledProgram,
    ProgramInstallError as ProgramInstallError,
)
from nemo_gym._util.json_shapes import as_mapping

INSTALL_KEY = "install"
"""The key of an agent's block that lists the packages it needs."""


class ProgramInstall(BaseModel):
    """The packages that provide a program."""

    model_config = ConfigDict(extra="forbid")

    npm: list[str] = Field(default_factory=list)
    """npm packages: `["@openai/codex@0.166.0"]`."""
    pypi: list[str] = Field(default_factory=list)
    """Python packages: `["mini-swe-agent==2.4.*"]`. They get their own virtual environment."""


async def install_program(
    install: ProgramInstall, config: Mapping[str, Any], on_line: Callable[[str], None]
) -> InstalledProgram:
    """Install the packages that are missing into the config's `cache_dir`, and report progress to `on_line`."""
    cache_dir = Path(config.get("cache_dir") or CACHE_DIR)
    return await program_store.install_program(install.npm, install.pypi, cache_dir, on_line)


def find_install(block: Any) -> ProgramInstall | None:
    """Return the packages that a server's block asks for; None if it asks for none."""
    plain = OmegaConf.to_container(block, resolve=True) if OmegaConf.is_config(block) else block
    install = as_mapping(plain).get(INSTALL_KEY)
    return ProgramInstall.model_validate(install) if isinstance(install, dict) else None
