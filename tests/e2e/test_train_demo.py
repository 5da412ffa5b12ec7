# SPDX-License-Identifier: Apache-2.0
"""A real model learns on this machine's CPU, as the guide says. Runs in the environment of `make train-test`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from tests.test_docs import script_of

pytest.importorskip("torch", reason="needs torch: `make train-test` has an environment with it")

GUIDE = PARENT_DIR / "docs" / "guides" / "train-with-trl.md"


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(3600)
def test_the_guide_can_be_followed_and_the_model_learns(tmp_path, unused_tcp_port):
    work = tmp_path / "work"
    work.mkdir()
    (work / "env.yaml").write_text(f"head_server: {{port: {unused_tcp_port}}}\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script_of(GUIDE, tmp_path)],
        cwd=work,
        env={**os.environ, "PATH": path, "TRL_EXPERIMENTAL_SILENCE": "1"},
        capture_output=True,
        text=True,
        timeout=3500,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("256 scored of 256 requested, 0 failed") == 2
    assert "it has learned (paired difference +" in done.stdout
    assert "trained 2 steps" in done.stdout
    assert (work / "results/train-demo/learning-curve.png").read_bytes().startswith(b"\x89PNG")
