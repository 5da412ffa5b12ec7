# SPDX-License-Identifier: Apache-2.0
"""The verdicts on a table of answers, with the installed library and with the versions that the package allows."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from resources_servers.math_with_judge.tests.answer_pairs import find_wrong_verdicts, read_table


def test_equal_answers_are_found_equal_and_others_are_not():
    assert len(read_table()) >= 200
    assert find_wrong_verdicts() == []


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
@pytest.mark.parametrize("resolution", ["lowest", "highest"])
def test_the_verdicts_are_the_same_with_every_version_that_is_allowed(resolution, tmp_path):
    extras = tomllib.loads((PARENT_DIR / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (library,) = (one for one in extras["environments"] if one.startswith("math-verify"))
    python = tmp_path / "venv/bin/python"
    run("uv", "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    # The core brings hydra, which needs this version of antlr.
    wanted = [library, "antlr4-python3-runtime==4.9.3", "sympy>=1.13"]
    run("uv", "pip", "install", "--quiet", "--resolution", resolution, "--python", python, *wanted)
    run(python, "-m", "resources_servers.math_with_judge.tests.answer_pairs")


def run(*command: str | Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PARENT_DIR)}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
