# SPDX-License-Identifier: Apache-2.0
"""Start a script as a user without rights, also where the tests run as root with an interpreter for root only."""

import os
import shutil
import site
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534


def start_script(script: Path, *arguments: str, ordinary: bool, **options: Any) -> "subprocess.Popen[str]":
    """Start a Python script as ourselves, or, if `ordinary` and we are root, as `nobody`; its output is a pipe."""
    is_root = os.geteuid() == 0
    interpreter = _interpreter_for_all() if is_root else sys.executable
    identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if ordinary and is_root else {}
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), *site.getsitepackages()]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SECRET_OF_THE_TEST": "hunter2",
    }
    command = [interpreter, str(script), *arguments]
    return subprocess.Popen(command, env=env, cwd="/", text=True, stdout=subprocess.PIPE, **identity, **options)


@cache
def _interpreter_for_all() -> str:
    """Return an interpreter of our version that every user can run, with the packages of ours."""
    for folder in (ROOT, *map(Path, site.getsitepackages())):
        if not _all_may_enter(folder):
            pytest.skip(f"an ordinary user cannot read {folder}")
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for found in (sys.executable, shutil.which(name, path="/usr/local/bin:/usr/bin")):
        if found is not None and _all_may_enter(Path(found).resolve()):
            return found
    pytest.skip(f"an ordinary user finds no {name} to run: root's is in a folder that only root may enter")


def _all_may_enter(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))
