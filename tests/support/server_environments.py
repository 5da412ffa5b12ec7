# SPDX-License-Identifier: Apache-2.0
"""The virtual environment of a server, built as `gym env test` builds it, and tests that run in it."""

import asyncio
import subprocess
from pathlib import Path

from nemo_gym import CACHE_DIR, PARENT_DIR
from nemo_gym._serving.venvs import VenvSettings, build_all, plan_venv

_TIMEOUT_S = 800


def build_server_environment(folder: Path, requirements: tuple[str, ...] = ()) -> Path:
    """Return the Python of the environment of the server in `folder`, in which its tests can run."""
    settings = VenvSettings(cache_dir=CACHE_DIR, uv_cache_dir=CACHE_DIR / "uv")
    plan = plan_venv(folder, settings, extras=True, of_instance=requirements)
    asyncio.run(build_all([plan], settings, lambda event: None))
    return plan.python


def run_tests_in_environment(file: Path, requirements: tuple[str, ...] = ()) -> None:
    """Run the tests in `file`, of a server's folder `tests`, with the server's own libraries; all must pass."""
    python = build_server_environment(file.parents[1], requirements)
    command = [str(python), "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, cwd=PARENT_DIR, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-10_000:]
