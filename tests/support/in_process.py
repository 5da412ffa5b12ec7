# SPDX-License-Identifier: Apache-2.0
"""Commands in this process, as a user types them, with nothing left behind for the next one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from nemo_gym import global_config
from nemo_gym._config import port_reservation as ports
from nemo_gym.cli import legacy
from nemo_gym.cli.main import run_command


@dataclass(frozen=True)
class Said:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


def said_by(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], alias: str, *words: str) -> Said:
    """Run `gym`, or a command by its older name."""
    is_legacy = "_" in alias
    monkeypatch.setattr(sys, "argv", [alias, *words] if is_legacy else [alias])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    capsys.readouterr()
    code = legacy.run_alias() if is_legacy else run_command(list(words))
    return Said(code, *capsys.readouterr())


@contextmanager
def ports_given_back() -> Iterator[None]:
    """Ports that a command has reserved are its own until its process ends, which this one does not yet."""
    try:
        yield
    finally:
        while ports._reserved:
            ports._reserved.popitem()[1].close()
