# SPDX-License-Identifier: Apache-2.0
"""`gym env packages`: what is installed in the environment that a server runs with."""

import subprocess
import sys
from typing import Any, Literal

from omegaconf import OmegaConf
from pydantic import Field

from nemo_gym._app.plan import venv_settings
from nemo_gym._serving.uv_tool import find_uv
from nemo_gym._serving.venvs import plan_venv
from nemo_gym.cli import render
from nemo_gym.cli.server_folders import named_folder
from nemo_gym.cli.settings import validated
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig


class PipListConfig(BaseNeMoGymCLIConfig):
    """List the packages that are installed in a server's environment."""

    entrypoint: str = Field(description="The relative entrypoint path to the server directory.")
    format: Literal["columns", "freeze", "json"] | None = Field(
        default=None, description="Output format: 'columns' (default), 'freeze' or 'json'."
    )
    outdated: bool = Field(default=False, description="List outdated packages only; asks the package registry.")


def packages(overrides: list[str]) -> int:
    """Print the packages; the exit code is that of `uv pip list`."""
    sys.argv[1:] = overrides
    config = GlobalConfigDictParser().parse(GlobalConfigDictParserConfig(offline=True))
    plain: Any = OmegaConf.to_container(config, resolve=True)
    settings = validated(PipListConfig, plain)
    server = named_folder(settings.entrypoint)
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
