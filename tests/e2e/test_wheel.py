# SPDX-License-Identifier: Apache-2.0
"""The wheel works outside a clone: servers, configs and example data come with it."""

import os
import signal
import subprocess
import sys

import pytest

from nemo_gym import PARENT_DIR
from tests.support.gym_process import gym_env_start

PLAY = """
import asyncio, sys
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

async def main():
    reply = await client.post("example_single_tool_call", "/get_weather", json={"city": "Oslo"})
    await raise_for_status(reply)
    print(await get_response_json(reply))

client = ServerClient.load_from_global_config(BaseServerConfig(host="127.0.0.1", port=int(sys.argv[1])))
asyncio.run(main())
"""


@pytest.mark.slow
def test_everything_a_server_needs_is_in_the_wheel(installed):
    for path in (
        "nemo_gym/py.typed",
        "resources_servers/example_single_tool_call/app.py",
        "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
        "resources_servers/example_multi_step/data/example.jsonl",
        "resources_servers/first_steps/data/demo.jsonl",
        "resources_servers/simple_weather/configs/simple_weather.yaml",
        "responses_api_agents/simple_agent/client.py",
        "responses_api_models/local_model/app.py",
        "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
    ):
        assert (installed / path).is_file(), path
    assert not list(installed.rglob(".venv"))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_it_is_built_installed_and_runs(form, tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", form, "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=PARENT_DIR, check=True, capture_output=True)
    (package,) = (tmp_path / "dist").iterdir()
    target = tmp_path / "installed"
    install = ["-m", "uv", "pip", "install", "--offline", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, *install, str(package)], check=True, capture_output=True)
    told = subprocess.run(
        [sys.executable, "-m", "nemo_gym.cli.main", "list", "resources-servers", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "example_single_tool_call" in told.stdout
    assert str(PARENT_DIR) not in told.stdout
    metadata = next(target.glob("nemo_gym-*.dist-info/METADATA")).read_text()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Provides-Extra: docs" in metadata


@pytest.mark.slow
def test_servers_of_the_wheel_start_in_an_empty_folder(installed, tmp_path, unused_tcp_port):
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    arguments = [
        "--resources-server",
        "example_single_tool_call",
        "--model-type",
        "replay_model",
        "++policy_model.responses_api_models.replay_model.replies=[hello]",
        f"++head_server.port={unused_tcp_port}",
    ]
    with gym_env_start(*arguments, cwd=tmp_path, environment=environment) as gym:
        played = subprocess.run(
            [sys.executable, "-c", PLAY, str(unused_tcp_port)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert gym.stop(signal.SIGTERM) == 0
    assert "The weather in Oslo is cold." in played.stdout
    where = subprocess.run(
        [sys.executable, "-c", "import nemo_gym; print(nemo_gym.PARENT_DIR)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.strip() == str(installed)


@pytest.mark.exhaustive
def test_the_installation_of_a_wheel_can_be_measured(installed, tmp_path):
    def gym(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "nemo_gym.cli.main", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=True,
        )

    assert "usage: gym bench [PART ...]" in gym("bench", "--help").stdout
    assert "bare POST" in gym("bench", "bare_post", "--output", "bench.json").stdout
    assert (tmp_path / "bench.json").is_file()
    assert "constants measured on" in gym("bench", "plan", "--latency", "2s").stderr
