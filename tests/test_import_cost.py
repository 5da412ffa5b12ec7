# SPDX-License-Identifier: Apache-2.0
"""What an import drags in. How long it takes is measured in `nemo_gym._bench`, where no test depends on it."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "anthropic",
    "datasets",
    "gradio",
    "hydra",
    "mcp",
    "mlflow",
    "numpy",
    "openai",
    "pandas",
    "ray",
    "torch",
    "wandb",
    "yappi",
)


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after `statement`, beyond those of an empty one."""
    return _loaded(statement) - _loaded("pass")


def _loaded(statement: str) -> set[str]:
    code = (
        f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_nothing_but_the_standard_library():
    assert modules_after("import nemo_gym") - sys.stdlib_module_names == {"nemo_gym"}


@pytest.mark.parametrize(
    "module",
    [
        "nemo_gym",
        "nemo_gym.base_resources_server",
        "nemo_gym.cli.main",
        "nemo_gym.global_config",
        "nemo_gym.openai_utils",
    ],
)
def test_what_every_server_and_command_imports_loads_no_heavy_library(module):
    assert modules_after(f"import {module}").isdisjoint(HEAVY)


@pytest.mark.parametrize("command", [["aggregate", "-o", "all.jsonl", "-i"], ["profile", "--rollouts"]])
def test_commands_that_only_read_the_files_of_a_run_load_neither_a_server_nor_a_client(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    key = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    (tmp_path / "run.jsonl").write_text(json.dumps({**key, "reward": 1.0}))
    (tmp_path / "run_materialized_inputs.jsonl").write_text(json.dumps(key))
    statement = f"""
import contextlib, io
from nemo_gym.cli.main import run_command
with contextlib.redirect_stdout(io.StringIO()):
    assert run_command({["eval", *command, "run.jsonl"]}) == 0
"""
    assert modules_after(statement).isdisjoint({*HEAVY, "aiohttp", "fastapi", "uvicorn"} - {"hydra"})


def test_a_heavy_library_would_be_noticed(tmp_path, monkeypatch):
    (tmp_path / "pandas.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "pandas" in modules_after("import pandas")
