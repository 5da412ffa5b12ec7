# SPDX-License-Identifier: Apache-2.0
"""Resources servers as environments of the real gymnasium; the program that plays is `real/play_gymnasium.py`."""

import os
import subprocess
import sys

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._servers.installing.installers import find_uv
from nemo_gym.integrations.gymnasium_env import GYMNASIUM_VERSION, make_env
from nemo_gym.integrations.libraries import MissingLibrary
from tests.support.gym_process import gym_env_start

PROGRAM = PARENT_DIR / "tests" / "integrations" / "real" / "play_gymnasium.py"
LIBRARY = f"gymnasium=={GYMNASIUM_VERSION}"
SERVERS = ("blackjack", "example_multi_step", "string_match")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The folder of gymnasium, which is no dependency of ours."""
    folder = tmp_path_factory.mktemp("gymnasium")
    run([find_uv(), "pip", "install", "-q", "--python", sys.executable, "--target", folder, LIBRARY], folder)
    return folder


def run(command, cwd, **environment):
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def play(library, cwd, *arguments):
    path = os.pathsep.join(map(str, (library, PARENT_DIR)))
    return run([sys.executable, PROGRAM, *arguments], cwd, PYTHONPATH=path).splitlines()[-1]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.network
def test_gymnasium_plays_in_servers_of_its_own_process(library, tmp_path):
    assert play(library, tmp_path).endswith("with rewards that are exact")


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.network
def test_gymnasium_plays_in_servers_that_run_already(library, tmp_path, unused_tcp_port):
    servers = [f"--resources-server={name}" for name in SERVERS]
    model = ["--model-type=replay_model", "++policy_model.responses_api_models.replay_model.replies=[unused]"]
    with gym_env_start(*servers, *model, f"++head_server.port={unused_tcp_port}", cwd=tmp_path):
        said = play(library, tmp_path, f"127.0.0.1:{unused_tcp_port}")
    assert said.endswith("with rewards that are exact")


def test_without_gymnasium_it_is_said_what_to_install():
    with pytest.raises(MissingLibrary, match=f"pip install gymnasium=={GYMNASIUM_VERSION}"):
        make_env("blackjack")
