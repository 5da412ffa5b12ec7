# SPDX-License-Identifier: Apache-2.0
"""The NeMo Gym bridge of verifiers drives our resources servers: run with the Python of an environment that has it."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.env import RunSlot
from verifiers.v1.episode import Episode

from resources_servers.example_mcp_weather import generate_data as mcp_weather
from resources_servers.example_mcp_weather.app import ExampleMCPWeatherResourcesServer
from resources_servers.example_multi_step import generate_data as multi_step
from resources_servers.example_multi_step.app import ExampleMultiStepResourcesServer
from resources_servers.example_session_state_mgmt import generate_data as counter
from resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmtResourcesServer
from responses_api_agents.verifiers_env.environments import build_environment
from responses_api_models.replay_model.app import ReplayModel
from tests.support.served_run import serve_run

STARTUP_S = 60


async def drive(folder: Path, url: str, row: dict[str, Any], model_url: str) -> Episode:
    """Play `row` by the bridge, with its null harness."""
    dataset = folder / "rows.jsonl"
    dataset.write_text(json.dumps(row) + "\n")
    taskset = {"dataset": str(dataset), "task": {"resources_url": url}}
    environment = build_environment("nemo_gym", {"taskset": taskset}, harness="null", runtime="subprocess")
    client = EvalClientConfig(base_url=f"{model_url}/v1", api_key_var="NO_KEY")
    async with environment.serving():
        (task,) = environment.taskset
        return await environment.run_slot(RunSlot(task), ModelContext(model="m", client=client))


def script(turns: list[Any]) -> dict[str, Any]:
    """Return the config of a model that says `turns`."""
    replies = [
        turn if isinstance(turn, str) else {"tool_calls": [{"name": turn[0], "arguments": turn[1]}]} for turn in turns
    ]
    return {"replies": replies}


def first_row(server: Any) -> dict[str, Any]:
    return json.loads((Path(server.__file__).parent / "data" / "example.jsonl").read_text().splitlines()[0])


@pytest.mark.parametrize("data", [multi_step, counter, mcp_weather], ids=["tools", "session", "mcp"])
@pytest.mark.parametrize("solved", [True, False])
async def test_the_bridge_plays_and_scores_a_row(monkeypatch, tmp_path, data, solved):
    servers = {
        multi_step: ExampleMultiStepResourcesServer,
        counter: ExampleSessionStateMgmtResourcesServer,
        mcp_weather: (ExampleMCPWeatherResourcesServer, {"expose_tools_over_mcp": True}),
    }
    row = first_row(data)
    model = script(data.solution(row) if solved else ["I would rather not."])
    async with serve_run(monkeypatch, policy_model=(ReplayModel, model), world=servers[data]) as run:
        episode = await drive(tmp_path, run.urls["world"], row, run.urls["policy_model"])
    assert episode.ok, episode.errors
    assert episode.traces[0].reward == float(solved)
    assert episode.traces[0].num_turns == len(model["replies"])


async def test_the_bridge_starts_a_server_itself(monkeypatch, tmp_path):
    name = "resources_servers.example_multi_step.app:ExampleMultiStepResourcesServer"
    program = "from verifiers.v1.tasksets.nemo_gym.server import main; main()"
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=tmp_path, env={**os.environ, "NEMO_GYM_RESOURCE_SERVER": name}
    )
    port = tmp_path / "nemo_gym.port"
    try:
        async with asyncio.timeout(STARTUP_S):
            while not port.exists() or not port.read_text():
                assert server.returncode is None
                await asyncio.sleep(0.1)
        row = first_row(multi_step)
        async with serve_run(monkeypatch, policy_model=(ReplayModel, script(multi_step.solution(row)))) as run:
            episode = await drive(tmp_path, f"http://127.0.0.1:{port.read_text()}", row, run.urls["policy_model"])
        assert episode.ok, episode.errors
        assert episode.traces[0].reward == 1.0
        assert episode.traces[0].metrics["set_overlap"] == 1.0
    finally:
        server.kill()
        await server.wait()
