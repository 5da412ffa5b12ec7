# SPDX-License-Identifier: Apache-2.0
"""The versions that `pyproject.toml` promises are true: the core works with the lowest of them, and with the ones that
the environments of servers written for NeMo Gym are locked to.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR

CORE = ["config", "contract", "metrics", "results", "rollouts", "serving", "transport", "wire", "e2e/test_eval_run.py"]
LOCKED_BY_OTHERS = ["pydantic==2.13.4", "uvicorn==0.37.0"]


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "wanted", [["--resolution", "lowest-direct"], LOCKED_BY_OTHERS], ids=["the lowest allowed", "locked by others"]
)
def test_the_core_works_with(wanted, tmp_path):
    python = tmp_path / "venv/bin/python"
    run("uv", "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    run("uv", "pip", "install", "--quiet", "--python", python, *wanted, "--editable", f"{PARENT_DIR}[dev]")
    suites = [PARENT_DIR / "tests" / suite for suite in CORE] + sorted((PARENT_DIR / "tests").glob("test_[!di]*.py"))
    # Old libraries leave sockets to the garbage collector; that is for them to mend.
    run(python, "-m", "pytest", "-q", "-n", "2", "-p", "no:unraisableexception", "-p", "no:cacheprovider", *suites)


def run(*command: str | Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(list(map(str, command)), cwd=PARENT_DIR, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
