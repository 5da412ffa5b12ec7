# SPDX-License-Identifier: Apache-2.0
"""Run shell commands in a server's virtual environment, for programs that start servers themselves.

`run_command(f"{setup_env_command(folder, config, name)} && python app.py", folder)` starts a server by hand; `gym env
start` needs neither.
"""

import asyncio
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from omegaconf import DictConfig

from nemo_gym._servers.installing.venvs import VenvProgress, build_all, plan_venv
from nemo_gym._servers.launching.placement_plan import venv_settings
from nemo_gym.cli import render


def setup_env_command(dir_path: str | Path, global_config_dict: DictConfig, prefix: str) -> str:
    """Build the virtual environment of the server in `dir_path`; return the shell command that enters both.

    `prefix` names the server in the progress messages of a build.
    """
    settings = venv_settings(global_config_dict)
    plan = plan_venv(Path(dir_path), settings)

    def tell(progress: VenvProgress) -> None:
        if progress.stage in ("building", "waiting", "failed") or settings.verbose:
            render.note(f"({prefix}) {progress.text}")

    with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop of its own
        thread.submit(lambda: asyncio.run(build_all([plan], settings, tell))).result()
    programs = plan.python.parent
    activate = programs / "activate"
    enter = f"source {shlex.quote(str(activate))}" if activate.is_file() else f"PATH={shlex.quote(str(programs))}:$PATH"
    return f"cd {shlex.quote(str(plan.folder))} && {enter}"


def run_command(command: str, working_dir_path: str | Path) -> subprocess.Popen[bytes]:
    """Start `command` in a shell in `working_dir_path`, which Python also imports from."""
    folder = str(Path(working_dir_path).absolute())
    paths = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(["bash", "-c", command], cwd=folder, env={**os.environ, "PYTHONPATH": paths})
