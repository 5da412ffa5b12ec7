# SPDX-License-Identifier: Apache-2.0
"""What every worker of a run is told: the servers that it hosts for itself, and how to play."""

import orjson
import pytest
from omegaconf import OmegaConf

from nemo_gym._rollouts.workers.rollout_worker import WorkerOrders
from nemo_gym._rollouts.workers.run_workers import list_hosted
from nemo_gym._servers.direct_calls import running_apps as registry
from nemo_gym.cli.eval.run_settings import EvalRunConfig
from responses_api_models.local_model.app import LocalModelConfig
from responses_api_models.replay_model.app import ReplayModelConfig

WHERE = {"entrypoint": "app.py", "host": "127.0.0.1"}


def servers(*, world_once=None, world_port=3):
    world = {**WHERE, "port": world_port, "domain": "other"}
    if world_once is not None:
        world["run_once"] = world_once
    replay = {**WHERE, "port": 1, "replies": ["yes"]}
    return OmegaConf.create(
        {
            "policy_model": {"responses_api_models": {"replay_model": replay}},
            "world": {"resources_servers": {"example_single_tool_call": world}},
        }
    )


@pytest.fixture
async def hosted_here():
    """The ports 1 to 3 are served by this process."""
    ports = (1, 2, 3)
    for port in ports:
        registry.host_app("127.0.0.1", port, lambda scope, receive, send: None)
    yield
    for port in ports:
        registry.unhost_app("127.0.0.1", port)


@pytest.mark.parametrize(
    ("config", "hosted"),
    [
        (servers(), ["policy_model", "world"]),
        (servers(world_once=False), ["policy_model", "world"]),
        (servers(world_once=True), ["policy_model"]),
        (servers(world_port=9), ["policy_model"]),
    ],
    ids=["by default", "said to be many", "said to be one", "in a process of its own"],
)
def test_workers_host_the_inline_servers_that_need_not_be_one(hosted_here, config, hosted):
    assert list_hosted(config) == hosted


@pytest.mark.parametrize(
    ("config", "runs_once"),
    [
        (LocalModelConfig(name="m", port=1, **WHERE), True),
        (LocalModelConfig(name="m", port=1, run_once=False, **WHERE), False),
        (ReplayModelConfig(name="m", port=1, replies=["yes"], **WHERE), False),
        (ReplayModelConfig(name="m", port=1, rollouts_jsonl_fpath="r.jsonl", **WHERE), True),
        (ReplayModelConfig(name="m", port=1, rollouts_jsonl_fpath="r.jsonl", run_once=False, **WHERE), False),
    ],
)
def test_models_that_are_heavy_or_keep_an_order_run_once_unless_told_otherwise(config, runs_once):
    assert config.run_once is runs_once


def test_workers_are_given_the_settings_of_play_and_no_others():
    run = EvalRunConfig(output_jsonl_fpath="secret.jsonl", rollout_timeout_seconds=5, fail_on_tool_error=True)
    orders = WorkerOrders(hosted=["world"], settings=run)
    assert orjson.loads(orders.model_dump_json()) == {
        "hosted": ["world"],
        "settings": {"rollout_timeout_seconds": 5.0, "fail_on_tool_error": True, "quiet": False},
    }
