# SPDX-License-Identifier: Apache-2.0
"""`gym` in this process, as a user types it, with nothing left behind for the next test."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from nemo_gym import global_config
from nemo_gym.cli.main import main


@dataclass(frozen=True)
class Said:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def gym(monkeypatch, capsys, tmp_path) -> Callable[..., Said]:
    """Run a command in an empty folder."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["gym"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        code = main(list(arguments))
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def gym_apart(tmp_path) -> Callable[..., Said]:
    """Run a command in a process of its own, in an empty folder."""
    folder = tmp_path / "apart"
    folder.mkdir()

    def run(*arguments: str, **environment: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "nemo_gym.cli.main", *arguments],
            cwd=folder,
            env={**os.environ, "NEMO_GYM_EXTRA_ROOTS": str(tmp_path), **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run
