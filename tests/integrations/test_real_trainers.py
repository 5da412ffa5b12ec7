# SPDX-License-Identifier: Apache-2.0
"""The libraries of trainers, each in an environment of its own: their classes call ours and take what we give.

The programs are in `real/`. No GPU is needed: verl and OpenRLHF are given an engine that follows a script, with a real
tokenizer of Hugging Face.
"""

import os
import shutil
import subprocess
import sys
import tomllib

import pytest

from nemo_gym import PARENT_DIR

TRAINERS = {
    "verl": (
        "3.11",
        ["--no-deps", "verl==0.9.1"],
        "torch==2.13.0 ray==2.60.* tensordict==0.10.* transformers<5.11 pillow codetiming cachetools pandas datasets "
        "torchdata accelerate regex",
    ),
    "openrlhf": ("3.11", ["--no-deps", "openrlhf==0.11.0"], "torch==2.13.0 transformers==5.15.* sympy pylatexenc"),
    "art": ("3.12", ["openpipe-art==0.5.23"], ""),
}
# A wheel among these installs a package `tests`, which would hide ours.
PRELUDE = """
import runpy, sys, types
sys.modules["tests"] = types.ModuleType("tests")
sys.modules["tests"].__path__ = [sys.argv[1]]
runpy.run_path(sys.argv[2], run_name="__main__")
"""


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(1800)  # the installation takes minutes
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_takes_our_rollouts(trainer, tmp_path):
    version, own, others = TRAINERS[trainer]
    interpreter = find_python(version)
    if interpreter is None:
        pytest.skip(f"{trainer} needs Python {version}")
    python = tmp_path / "venv" / "bin" / "python"
    run([interpreter, "-m", "venv", tmp_path / "venv"])
    project = tomllib.loads((PARENT_DIR / "pyproject.toml").read_text())["project"]
    tests = ["pytest", "httpx", "pyarrow", "openai"]
    for wanted in (own, [*others.split(), *project["dependencies"], *tests]):
        run([python, "-m", "pip", "install", "-q", *wanted])
    program = PARENT_DIR / "tests" / "integrations" / "real" / f"play_{trainer}.py"
    homes = dict.fromkeys(("HOME", "HF_HOME"), str(tmp_path))
    environment = {**os.environ, **homes, "PYTHONPATH": str(PARENT_DIR), "WEAVE_DISABLED": "true"}
    said = run([python, "-c", PRELUDE, PARENT_DIR / "tests", program], cwd=tmp_path, env=environment)
    assert "exact" in said.splitlines()[-1]


def find_python(version):
    """An interpreter of this version, if the machine has one."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys._base_executable
    found = shutil.which(f"python{version}")
    works = found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0
    if works:
        return found
    roots = sorted(PARENT_DIR.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(roots[-1]) if roots else None


def run(command, **settings):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=1500, **settings)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done.stdout
