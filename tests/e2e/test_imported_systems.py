# SPDX-License-Identifier: Apache-2.0
"""An environment of every system, imported and played in the virtual environment that the launcher builds for it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nemo_gym import PARENT_DIR
from nemo_gym._catalog.systems import SYSTEMS

ROWS = 5
ENVIRONMENTS = {
    "atropos": "responses_api_agents/atropos_env/sample_environments/add_numbers.py:AddNumbers",
    "aviary": "dummy",
    "gem": "game:GuessTheNumber-v0-easy",
    "gymnasium": "FrozenLake-v1",
    "reasoning_gym": "leg_counting",
    "skyrl": "gsm8k",
    "textarena": "TicTacToe-v0",
    "verifiers": "responses_api_agents/verifiers_env/sample_tasksets/count_letters",
    "verifiers_v0": "responses_api_agents/verifiers_v0_env/sample_environments/reverse_words.py",
}
"""By system; one of OpenEnv is a server that has to run, which the tests of its adapter start."""
INSTALLED = [name for name in ENVIRONMENTS if (PARENT_DIR / SYSTEMS[name].folder / "catalogue.py").is_file()]
MODEL = {"entrypoint": "app.py", "replies": ["<answer>4</answer> [4] \\boxed{4} #### 4"], "on_miss": "cycle"}


def test_an_environment_of_every_system_that_needs_no_server_is_named():
    assert set(ENVIRONMENTS) == set(SYSTEMS) - {"openenv"}


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(900)
@pytest.mark.parametrize("system", INSTALLED)
def test_an_imported_environment_is_played_and_every_rollout_is_scored(system, tmp_path, unused_tcp_port):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "env.yaml").write_text(
        yaml.safe_dump(
            {
                "policy_model": {"responses_api_models": {"replay_model": MODEL}},
                "head_server": {"host": "127.0.0.1", "port": unused_tcp_port},
            }
        )
    )

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    offered = {one["id"] for one in json.loads(run("gym", "list", "environments", "--from", system, "--json"))}
    assert ENVIRONMENTS[system] in offered
    words = (f"{system}:{ENVIRONMENTS[system]}", "--rows", str(ROWS), "--seed", "1", "-o", "out", "--json")
    first = json.loads(run("gym", "import", *words))
    assert json.loads(run("gym", "import", *words)) == first, (
        "the same seed gives the same bytes, so nothing is refused"
    )
    assert f"{ROWS} scored of {ROWS} requested, 0 failed" in run(*shlex.split(first["command"]))
