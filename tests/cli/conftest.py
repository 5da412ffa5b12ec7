# SPDX-License-Identifier: Apache-2.0
"""`gym` in this process and an empty folder."""

import sys
from collections.abc import Callable, Iterator

import pytest

from nemo_gym import global_config
from tests.support.in_process import Said, ports_given_back, said_by


@pytest.fixture(autouse=True)
def ports_are_given_back() -> Iterator[None]:
    with ports_given_back():
        yield


@pytest.fixture
def gym(monkeypatch, capsys, tmp_path) -> Callable[..., Said]:
    """Run a command in an empty folder."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    # Tests that call what is behind a command find the same.
    monkeypatch.setattr(sys, "argv", ["gym"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    return lambda *words: said_by(monkeypatch, capsys, "gym", *words)
