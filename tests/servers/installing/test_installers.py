# SPDX-License-Identifier: Apache-2.0
"""Finding uv and running it."""

import os
import pickle
import sys

import pytest

from nemo_gym._servers.installing.installers import KEPT_LINES, InstallerFailed, find_uv, run_tool
from nemo_gym.errors import GymError


async def say(tmp_path, code: str) -> list[str]:
    """Run a Python that stands for uv; the lines it wrote."""
    lines: list[str] = []
    descriptor = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    try:
        await run_tool(
            [sys.executable, "-c", code], cwd=tmp_path, timeout_s=60, inherited_fd=descriptor, on_line=lines.append
        )
    finally:
        os.close(descriptor)
    return lines


def test_uv_comes_with_nemo_gym():
    assert find_uv().is_file()


def test_uv_is_looked_for_on_the_path(tmp_path, monkeypatch):
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_uv() == tmp_path / "uv"


def test_without_uv_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GymError, match="hint: pip install uv"):
        find_uv()


async def test_lines_of_both_streams_arrive_however_long(tmp_path):
    code = (
        "import sys; print('é' * 300_000, flush=True); print('two', file=sys.stderr, flush=True); print('end', end='')"
    )
    assert await say(tmp_path, code) == ["é" * 300_000, "two", "end"]


async def test_a_failure_carries_the_last_lines(tmp_path):
    with pytest.raises(InstallerFailed, match="exit code 3") as caught:
        await say(tmp_path, "[print(number) for number in range(100)]; raise SystemExit(3)")
    assert caught.value.output.split() == [str(number) for number in range(100 - KEPT_LINES, 100)]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
