# SPDX-License-Identifier: Apache-2.0
"""An environment of every system, imported and played in the virtual environment that the launcher builds for it."""

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from nemo_gym import PARENT_DIR
from nemo_gym._authoring.foreign_systems import SYSTEMS
from tests.support.server_venvs import server_python

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
"""By system; one of OpenEnv is a server that has to run."""
MODEL = {"entrypoint": "app.py", "replies": ["<answer>4</answer> [4] \\boxed{4} #### 4"], "on_miss": "cycle"}


def test_an_environment_of_every_system_that_needs_no_server_is_named():
    assert set(ENVIRONMENTS) == set(SYSTEMS) - {"openenv"}


@pytest.fixture
def run(tmp_path, unused_tcp_port):
    """Run a command in an empty folder whose `env.yaml` names a model that always says the same."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "env.yaml").write_text(
        yaml.safe_dump(
            {
                "policy_model": {"responses_api_models": {"replay_model": MODEL}},
                "head_server": {"host": "127.0.0.1", "port": unused_tcp_port},
            }
        )
    )

    def run_command(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_command


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(900)
@pytest.mark.parametrize("system", ENVIRONMENTS)
def test_an_imported_environment_is_played_and_every_rollout_is_scored(system, run):
    offered = {one["id"] for one in json.loads(run("gym", "list", "environments", "--from", system, "--json"))}
    assert ENVIRONMENTS[system] in offered
    words = (f"{system}:{ENVIRONMENTS[system]}", "--rows", str(ROWS), "--seed", "1", "-o", "out", "--json")
    first = json.loads(run("gym", "import", *words))
    assert json.loads(run("gym", "import", *words)) == first, (
        "the same seed gives the same bytes, so nothing is refused"
    )
    assert f"{ROWS} scored of {ROWS} requested, 0 failed" in run(*shlex.split(first["command"]))


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(900)
def test_an_openenv_server_is_imported_by_its_url(run, unused_tcp_port_factory):
    port = unused_tcp_port_factory()
    python = server_python("openenv", "openenv-core==0.3.0")
    server = subprocess.Popen([python, PARENT_DIR / "resources_servers/openenv/example_server.py", str(port)])
    try:
        wait_for_port(port)
        url = f"http://127.0.0.1:{port}"
        imported = json.loads(run("gym", "import", f"openenv:{url}", "--rows", str(ROWS), "-o", "out", "--json"))
        assert f"{ROWS} scored of {ROWS} requested, 0 failed" in run(*shlex.split(imported["command"]))
    finally:
        server.terminate()
        server.wait()


def wait_for_port(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens at port {port}")


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(900)
def test_two_versions_of_one_library_play_in_the_same_run(run, tmp_path):
    configs = [f"responses_api_agents/{name}/configs/{name}.yaml" for name in ("verifiers_env", "verifiers_v0_env")]
    flags = [word for config in configs for word in ("--config", config)]
    told = run("gym", "eval", "run", *flags, "--split", "example", "--output", "both.jsonl")
    assert "10 scored of 10 requested, 0 failed" in told
    agents = [json.loads(line)["agent_ref"]["name"] for line in (tmp_path / "both.jsonl").read_text().splitlines()]
    assert sorted(agents) == ["verifiers_env"] * 5 + ["verifiers_v0_env"] * 5
