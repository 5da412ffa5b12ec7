# SPDX-License-Identifier: Apache-2.0
"""A config's servers, all in this process."""

import asyncio
import importlib
import os
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest
from omegaconf import OmegaConf

from nemo_gym import global_config
from nemo_gym._servers.direct_calls.response import InProcessResponse
from nemo_gym._servers.launching.launch import (
    agents_to_ask,
    child_spec,
    plan_launch,
    release_ports,
    serve_config,
    server_folder,
)
from nemo_gym._servers.process_environment import run_token_path
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym.errors import ConfigError
from nemo_gym.global_config import GlobalConfigDictParser
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import ServerClient

WEATHER = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
AGENT = "example_single_tool_call_simple_agent"
DATA = server_folder("resources_servers", "example_single_tool_call") / "data"


@pytest.fixture
def config(monkeypatch, unused_tcp_port):
    parsed = GlobalConfigDictParser().parse_no_environment(
        OmegaConf.create(
            {
                "config_paths": [WEATHER, "responses_api_models/replay_model/configs/replay_model.yaml"],
                "head_server": {"port": unused_tcp_port},
                "policy_model": {
                    "responses_api_models": {
                        "replay_model": {"rollouts_jsonl_fpath": str(DATA / "example_rollouts.jsonl")}
                    }
                },
            }
        )
    )
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", parsed)
    return parsed


async def test_rollouts_are_played_without_a_socket_between_the_servers(config):
    rows = [
        {
            **row,
            "_ng_task_index": i,
            "_ng_rollout_index": 0,
            "agent_ref": {"name": "example_single_tool_call_simple_agent"},
        }
        for i, row in enumerate(read_rows(DATA / "example.jsonl"))
    ]
    async with serve_config(config) as served:
        assert len(served.servers) == 3
        played = [await finished for finished in RolloutCollectionHelper().run_examples(rows)]
        client = ServerClient.load_from_global_config()
        assert isinstance(await client.get("example_single_tool_call", "/"), InProcessResponse)
    assert sorted(row["_ng_task_index"] for row, _ in played) == [0, 1, 2, 3, 4]
    assert all(result["reward"] == 1.0 and result["agent_ref"] == row["agent_ref"] for row, result in played)


async def test_the_head_server_lists_what_runs_and_nothing_is_left_behind(config):
    async with serve_config(config) as served:
        servers = served.servers
        client = ServerClient.load_from_global_config()
        statuses = await asyncio.gather(*(asyncio.to_thread(client.poll_for_status, s.process_name) for s in servers))
        assert set(statuses) == {"success"}
        token = run_token_path(client.head_server_config)
        assert token.exists()
    assert not token.exists()
    assert {await asyncio.to_thread(client.poll_for_status, s.process_name) for s in servers} == {"connection_error"}


async def test_an_agent_is_asked_for_metrics_unless_it_can_be_seen_to_have_none(config):
    assert agents_to_ask(config) == {AGENT}, "it runs elsewhere, if at all"
    async with serve_config(config):
        assert agents_to_ask(config) == frozenset()
        config[AGENT].responses_api_agents.simple_agent.skip_verification = True
        assert agents_to_ask(config) == {AGENT}, "it gives no metrics at all then"


@pytest.mark.parametrize(
    ("server", "method"),
    [
        ("resources_servers.example_single_tool_call.app:ExampleSingleToolCallResourcesServer", "compute_metrics"),
        ("resources_servers.example_single_tool_call.app:ExampleSingleToolCallResourcesServer", "get_key_metrics"),
        ("resources_servers.example_single_tool_call.app:ExampleSingleToolCallResourcesServer", "aggregate_metrics"),
        ("responses_api_agents.simple_agent.app:SimpleAgent", "aggregate_metrics"),
    ],
)
async def test_an_agent_whose_metrics_a_server_makes_itself_is_asked_for_them(config, monkeypatch, server, method):
    module, _, name = server.partition(":")
    async with serve_config(config):
        cls = getattr(importlib.import_module(module), name)
        monkeypatch.setattr(cls, method, lambda self, *args: {}, raising=False)
        assert agents_to_ask(config) == {AGENT}


async def test_an_agent_whose_environment_has_mean_rewards_by_a_field_is_asked_for_them(config, monkeypatch):
    async with serve_config(config):
        from resources_servers.example_single_tool_call.app import ExampleSingleToolCallResourcesServer

        monkeypatch.setattr(ExampleSingleToolCallResourcesServer, "MEAN_REWARDS_BY", "city")
        assert agents_to_ask(config) == {AGENT}


def test_an_implementation_that_is_nowhere_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match="resources_servers/nope"):
        server_folder("resources_servers", "nope")


def test_the_folder_of_a_built_in_server_is_found_from_anywhere(monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert (server_folder("responses_api_agents", "simple_agent") / "app.py").is_file()


def test_a_server_process_finds_the_scripts_of_its_environment_first_and_uv_at_all(config, tmp_path):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    (venv / "bin" / "own-script").touch(mode=0o755)
    (plan, *_) = plan_launch(config)
    release_ports(config)
    own = replace(plan, venv=replace(plan.venv, python=venv / "bin" / "python"))
    environment = child_spec(own, {"PATH": "/nowhere"}).environment
    assert environment["VIRTUAL_ENV"] == str(venv)
    assert environment["PATH"].split(os.pathsep)[:2] == [str(venv / "bin"), "/nowhere"]
    assert which("own-script", path=environment["PATH"]) == str(venv / "bin" / "own-script")
    assert which("uv", path=environment["PATH"])
