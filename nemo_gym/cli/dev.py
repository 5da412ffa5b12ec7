# SPDX-License-Identifier: Apache-2.0
"""`gym dev`: commands for work on NeMo Gym itself."""

import subprocess
import sys
from importlib.util import find_spec
from typing import Annotated

from pydantic import Field

from nemo_gym import PARENT_DIR
from nemo_gym._config.overrides import parse_overrides
from nemo_gym.cli import render
from nemo_gym.cli.legacy import entry_point
from nemo_gym.cli.settings import validate_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.errors import GymError

Word = Annotated[str, Field(coerce_numbers_to_str=True)]
_TOOLS = {"pytest": "pytest", "pytest_cov": "pytest-cov"}


class DevTestConfig(BaseNeMoGymCLIConfig):
    """Run the core tests of NeMo Gym with a coverage report."""

    pytest_args: list[Word] = Field(default_factory=list, description="More arguments for pytest.")


def test(overrides: list[str]) -> int:
    """Run the core tests; return pytest's exit code."""
    config = validate_settings(DevTestConfig, parse_overrides(overrides).values)
    if not (PARENT_DIR / "tests").is_dir():
        raise GymError(
            f"NeMo Gym is installed in {PARENT_DIR} without its tests.\nhint: run this in a clone of the project"
        )
    absent = [package for module, package in _TOOLS.items() if find_spec(module) is None]
    if absent:
        raise GymError(f"{', '.join(absent)} must be installed.\nhint: pip install -e '.[dev]' in {PARENT_DIR}")
    command = [sys.executable, "-m", "pytest", "tests", "--cov=.", "--durations=10", *config.pytest_args]
    return subprocess.run(command, cwd=PARENT_DIR, check=False).returncode


dev_test = entry_point("dev_test")


class DevReinstallConfig(BaseNeMoGymCLIConfig):
    """Explain how to set up a clone."""


def reinstall(overrides: list[str]) -> int:
    """Name the replacement of this command."""
    render.note("nothing was installed: set up a clone with `make install` or `uv sync --extra dev`")
    return 1
