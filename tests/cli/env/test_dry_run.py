# SPDX-License-Identifier: Apache-2.0
"""The plan of a launch, with servers that the package comes with."""

import socket

import psutil
import pytest
from omegaconf import OmegaConf

from nemo_gym._servers.installing.venvs import VenvBuildError
from nemo_gym.cli.env import run_helper
from nemo_gym.cli.env.run_helper import DryRunFailed, show_plan
from nemo_gym.errors import ConfigError, GymError
from nemo_gym.global_config import GlobalConfigDictParser
from tests.support.small_servers import free_port, is_free

WEATHER = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
REPLAY = "responses_api_models/replay_model/configs/replay_model.yaml"


def config(**model):
    return GlobalConfigDictParser().parse_no_environment(
        OmegaConf.create(
            {
                "config_paths": [WEATHER, REPLAY],
                "head_server": {"port": free_port()},
                "dry_run": True,
                "policy_model": {"responses_api_models": {"replay_model": {"replies": ["hello"], **model}}},
            }
        )
    )


def test_the_plan_names_every_server_with_place_address_and_reason(capsys):
    parsed = config()
    show_plan(parsed)
    lines = capsys.readouterr().out.splitlines()
    blocks = [next(iter(next(iter(parsed[line.split()[0]].values())).values())) for line in lines[:3]]
    assert [line.split()[1:3] for line in lines[:3]] == [
        ["inline", f"http://{block['host']}:{block['port']}"] for block in blocks
    ]
    assert all(line.endswith("this environment has all it needs") for line in lines[:3])
    assert lines[3] == "3 servers: 3 in one process with the head server, 0 in processes of their own"
    assert all(is_free(block["port"]) for block in blocks), "reserved ports are given back"


@pytest.mark.thorough
async def test_the_plan_can_be_shown_inside_a_running_loop(capsys):
    show_plan(config(placement="process"))
    assert "2 in one process with the head server, 1 in processes of their own" in capsys.readouterr().out


def test_environments_are_built_before_servers_are_made(monkeypatch, capsys):
    built = list[str]()

    async def build(config, plans, notice):
        built.extend(plan.name for plan in plans)
        raise VenvBuildError("no package of this name")

    monkeypatch.setattr(run_helper, "build_environments", build)
    with pytest.raises(DryRunFailed, match="no package of this name") as caught:
        show_plan(config(latency_ms="very long"))
    assert "policy_model" in built
    assert "latency_ms" in str(caught.value), "what else is wrong is told too"


def test_a_process_is_started_only_to_build_its_server(capsys):
    before = psutil.Process().children()
    show_plan(config(placement="process"))
    assert "2 in one process with the head server, 1 in processes of their own" in capsys.readouterr().out
    assert psutil.Process().children() == before


@pytest.mark.parametrize(("placement", "how"), [("inline", "is not valid"), ("process", "exited with code 1")])
def test_a_server_that_cannot_be_built_fails_the_dry_run_and_is_named(placement, how, capsys):
    with pytest.raises(DryRunFailed, match=f"server 'policy_model' {how}") as caught:
        show_plan(config(latency_ms="very long", placement=placement))
    assert "latency_ms" in str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    assert "policy_model" in capsys.readouterr().out, "the plan is shown all the same"


def test_a_server_without_an_entrypoint_is_found(capsys):
    with pytest.raises(ConfigError, match="the entrypoint of server 'policy_model' does not exist"):
        show_plan(config(entrypoint="nowhere.py"))


def test_an_external_server_is_left_alone(capsys):
    show_plan(config(external=True, host="10.0.0.9", port=8000, latency_ms="very long"))
    assert "external  http://10.0.0.9:8000  somebody else runs it" in capsys.readouterr().out


def test_a_taken_port_fails_the_dry_run_of_a_process():
    parsed = config(placement="process", port=free_port())
    with socket.create_server(("127.0.0.1", parsed.policy_model.responses_api_models.replay_model.port)):
        with pytest.raises(GymError, match="the port is taken"):
            show_plan(parsed)
