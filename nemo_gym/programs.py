# SPDX-License-Identifier: Apache-2.0
"""Programs that agents run, such as Codex: what installs them, and where they are then.

They are installed once for each set of packages, into the cache of the installation, by whoever needs them first or by
`gym env prefetch`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym import CACHE_DIR
from nemo_gym._serving import program_store
from nemo_gym._serving.program_store import InstalledProgram as InstalledProgram
from nemo_gym._serving.program_store import ProgramInstallError as ProgramInstallError

INSTALL_KEY = "install"
"""Where the block of an agent says what it needs."""


class ProgramInstall(BaseModel):
    """The packages that a program comes in."""

    model_config = ConfigDict(extra="forbid")

    npm: list[str] = Field(default_factory=list)
    """Packages of the npm registry: `["@openai/codex@0.166.0"]`."""
    pypi: list[str] = Field(default_factory=list)
    """Python packages: `["mini-swe-agent==2.4.*"]`. They get a virtual environment of their own."""


async def install_program(
    install: ProgramInstall, config: Mapping[str, Any], on_line: Callable[[str], None]
) -> InstalledProgram:
    """Install what is not there yet, into the cache that the whole config names; tell `on_line` what happens."""
    cache_dir = Path(config.get("cache_dir") or CACHE_DIR)
    return await program_store.install_program(install.npm, install.pypi, cache_dir, on_line)


def find_install(block: Any) -> ProgramInstall | None:
    """Return what the block of a server asks to be installed for the programs that it runs."""
    plain = OmegaConf.to_container(block, resolve=True) if OmegaConf.is_config(block) else block
    asked = plain.get(INSTALL_KEY) if isinstance(plain, dict) else None
    return ProgramInstall.model_validate(asked) if isinstance(asked, dict) else None
