# SPDX-License-Identifier: Apache-2.0
"""What a Ray actor does for a worker of a run, without Ray: `tests/e2e/test_eval_workers_on_ray.py` has a cluster."""

import asyncio
import os
import signal
import zipfile
from io import BytesIO

import orjson
import psutil
import pytest
from omegaconf import OmegaConf

from nemo_gym._rollouts.workers.ray_workers import WorkerOutpost, find_needed_hosts, pack_servers, require_reachable
from nemo_gym._rollouts.workers.rollout_worker import WorkerOrders
from nemo_gym._rollouts.workers.worker_messages import FrameReader, Outbox
from nemo_gym.errors import ConfigError

MODEL = {"entrypoint": "app.py", "host": "127.0.0.1", "port": 1, "replies": ["It is cold."]}
AGENT = {
    "entrypoint": "app.py",
    "host": "127.0.0.1",
    "port": 2,
    "resources_server": {"type": "resources_servers", "name": "world"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}
WORLD = {"entrypoint": "app.py", "host": "127.0.0.1", "port": 3, "domain": "other"}
CONFIG = OmegaConf.create(
    {
        "head_server": {"host": "127.0.0.1", "port": 4},
        "policy_model": {"responses_api_models": {"replay_model": MODEL}},
        "world": {"resources_servers": {"example_single_tool_call": WORLD}},
        "agent": {"responses_api_agents": {"simple_agent": AGENT}},
    }
)
HOSTED = ["policy_model", "world", "agent"]
ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "Is it cold?"}]},
    "agent_ref": {"name": "agent"},
    "_ng_task_index": 0,
    "_ng_rollout_index": 0,
}


def test_the_folders_of_hosted_servers_are_packed_without_what_was_built_in_them():
    with zipfile.ZipFile(BytesIO(pack_servers(CONFIG, ["world", "agent"]))) as packed:
        names = packed.namelist()
    assert {"resources_servers/example_single_tool_call/app.py", "responses_api_agents/simple_agent/app.py"} < {*names}
    assert not [name for name in names if "__pycache__" in name or ".venv" in name or "replay_model" in name]


def test_a_worker_on_another_node_needs_servers_that_listen_beyond_this_machine():
    needed = find_needed_hosts(CONFIG, ["world", "agent"])
    assert needed == {"policy_model": "127.0.0.1"}
    on_ray = OmegaConf.merge(CONFIG, {"policy_model": {"responses_api_models": {"replay_model": {"placement": "ray"}}}})
    assert find_needed_hosts(on_ray, ["world", "agent"]) == {"head_server": "127.0.0.1"}, "which knows where it is"
    require_reachable(needed, "10.0.0.1", "10.0.0.1")
    require_reachable({"policy_model": "10.0.0.1"}, "10.0.0.2", "10.0.0.1")
    require_reachable({}, "10.0.0.2", "10.0.0.1")
    with pytest.raises(ConfigError, match=r"10\.0\.0\.2 cannot reach 'policy_model'(.|\n)*default_host=10\.0\.0\.1"):
        require_reachable(needed, "10.0.0.2", "10.0.0.1")


@pytest.mark.thorough
@pytest.mark.slow
async def test_an_outpost_plays_what_it_is_sent_and_tells_when_its_worker_is_killed(monkeypatch, tmp_path):
    monkeypatch.setenv("NEMO_GYM_RUN_TOKEN_DIR", str(tmp_path))
    outpost = WorkerOutpost()
    orders = WorkerOrders(hosted=HOSTED).model_dump_json()
    try:
        await outpost.start(
            "worker-1", orders, OmegaConf.to_yaml(CONFIG), pack_servers(CONFIG, HOSTED), {"A": "b"}, "", timeout_s=60
        )
        frames = list[bytes]()
        Outbox(frames.append).add(["play", 5], orjson.dumps(ROW))
        await asyncio.sleep(0)
        await outpost.send(frames[0])
        reader, told = FrameReader(), []
        async with asyncio.timeout(300):
            while not told:
                data, _, ended = await outpost.receive()
                assert ended is None
                told = [message for piece in data for messages, _ in reader.feed(piece) for message in messages]
            assert told[0][:3] == ["scored", 5, 1]
            (child,) = (one for one in psutil.Process().children() if "worker-1" in one.cmdline())
            os.kill(child.pid, signal.SIGKILL)
            while ended is None:
                _, _, ended = await outpost.receive()
        assert ended.startswith("was killed by SIGKILL")
    finally:
        await outpost.stop()
    assert not [*tmp_path.glob("run-*")], "the config, with its secrets, does not stay behind"
