# SPDX-License-Identifier: Apache-2.0
"""The virtual environment of a server that needs a library of its own, built as the launcher builds it, and kept."""

import asyncio
import subprocess
from pathlib import Path

from nemo_gym import PARENT_DIR
from nemo_gym._config.defaults import running_head_server_deps
from nemo_gym._servers.installing.venvs import VenvSettings, build_all, plan_venv

CACHE = Path(PARENT_DIR) / "cache"
_TIMEOUT_S = 800


def server_python(name: str, *packages: str) -> Path:
    """Return the interpreter of the resources server `name`, with the `packages` that an instance of it asks for."""
    return _build(Path(PARENT_DIR) / "resources_servers" / name, packages)


def run_tests_in_environment(file: Path, requirements: tuple[str, ...] = ()) -> None:
    """Run the tests in `file`, of a server's folder `tests`, with the server's own libraries; all must pass."""
    python = _build(file.parents[1], requirements, tests=True)
    command = [str(python), "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, cwd=PARENT_DIR, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-10_000:]


def _build(folder: Path, packages: tuple[str, ...], *, tests: bool = False) -> Path:
    running = () if tests else tuple(running_head_server_deps())
    settings = VenvSettings(cache_dir=CACHE, uv_cache_dir=CACHE / "uv", extra_requirements=running)
    plan = plan_venv(folder, settings, extras=tests, of_instance=packages)
    asyncio.run(build_all([plan], settings, lambda event: None))
    return plan.python
