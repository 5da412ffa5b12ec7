# SPDX-License-Identifier: Apache-2.0
"""Servers with `placement: ray` on a real cluster of two nodes, one of which dies."""

import asyncio
import json
import re
import shlex
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from nemo_gym import PARENT_DIR
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.policy_versions import announce
from tests.support.ray_clusters import RayEnvironment, TwoNodes, ray_environment, two_nodes, wait_until_gone
from tests.support.small_servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.exhaustive, pytest.mark.timeout(900)]

PATIENCE_S = 300
ROLLOUTS = 2000
SECRET = "never-to-be-seen-swordfish"
SESSION_REWARD = 2.0  # one for the seed, one for the tool: less, or more, would be a session that was lost or shared

APP = """
import os
from collections import Counter

from fastapi import Request

from nemo_gym.base_resources_server import (
    BaseSeedSessionRequest, BaseSeedSessionResponse, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY

COUNTS = Counter()


class Verified(BaseVerifyResponse):
    pid: int


class Counting(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/increment")(self.increment)
        return app

    async def seed_session(self, request: Request, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        COUNTS[request.session[SESSION_ID_KEY]] = 1
        return BaseSeedSessionResponse()

    async def increment(self, request: Request) -> dict:
        COUNTS[request.session[SESSION_ID_KEY]] += 1
        return {"count": COUNTS[request.session[SESSION_ID_KEY]]}

    async def verify(self, request: Request, body: BaseVerifyRequest) -> Verified:
        count = COUNTS.pop(request.session[SESSION_ID_KEY], 0)
        return Verified(**body.model_dump(), reward=float(count), pid=os.getpid())


if __name__ == "__main__":
    Counting.run_webserver()
"""

RUN_HELPER = """
import asyncio, json, os, sys
import ray
from omegaconf import OmegaConf

address, head_port = sys.argv[1], int(sys.argv[2])
ray.init(address, log_to_driver=False)


@ray.remote(num_cpus=0)
class NemoGym:
    def start(self, root, config):
        os.chdir(root)
        from nemo_gym.cli.env import GlobalConfigDictParserConfig, RunHelper

        given = OmegaConf.create({**config, "default_host": "127.0.0.1", "ray_head_node_address": address})
        self.helper = RunHelper()
        self.helper.start(GlobalConfigDictParserConfig(
            initial_global_config_dict=given, skip_load_from_cli=True, skip_load_from_dotenv=True))

    async def play(self, rows):
        from nemo_gym.rollout_collection import RolloutCollectionHelper
        from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig
        from nemo_gym.global_config import get_global_config_dict

        head = BaseServerConfig(**get_global_config_dict()[HEAD_SERVER_KEY_NAME])
        done = [await one for one in RolloutCollectionHelper().run_examples(rows, head)]
        return [(row["_rowidx"], result["reward"]) for row, result in done]

    def stop(self):
        self.helper.shutdown()


with open("config.yaml") as file:
    import yaml
    config = {**yaml.safe_load(file), "head_server": {"host": "127.0.0.1", "port": head_port}}
with open("tasks.jsonl") as file:
    rows = [{**json.loads(line), "_rowidx": number} for number, line in enumerate(file)][:8]
gym = NemoGym.remote()
ray.get(gym.start.remote(os.getcwd(), config))
print("PLAYED", json.dumps(sorted(ray.get(gym.play.remote(rows)))))
ray.get(gym.stop.remote())
print("STILL UP", len([node for node in ray.nodes() if node["Alive"]]))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Iterator[RayEnvironment]:
    with ray_environment(tmp_path_factory.mktemp("ray")) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(environment) -> Iterator[TwoNodes]:
    with two_nodes(environment) as nodes:
        yield nodes


@pytest.fixture
def mark(tmp_path) -> dict[str, str]:
    """In the environment of everything that a test starts, also on nodes."""
    return {"NEMO_GYM_TEST_RAY": str(tmp_path)}


def write_servers(root: Path, rollouts: int, **block: Any) -> list[str]:
    """Write a server whose sessions count, a model that calls its tool once, and tasks."""
    folder = root / "resources_servers" / "counting"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    replies = [{"tool_calls": [{"name": "increment", "arguments": {}}]}, "done"]
    model = {"entrypoint": "app.py", "replies": replies, "latency_ms": 50}
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "counting"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    server = {"entrypoint": "app.py", "domain": "other", "placement": "ray", **block}
    config = {
        "policy_model": {"responses_api_models": {"replay_model": model}},
        "counting": {"resources_servers": {"counting": server}},
        "counting_agent": {"responses_api_agents": {"simple_agent": agent}},
    }
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    tool = {"type": "function", "name": "increment", "parameters": {"type": "object", "properties": {}}}
    params = {"input": "count", "tools": [{**tool, "strict": False}]}
    agent_ref = {"type": "responses_api_agents", "name": "counting_agent"}
    row = {"responses_create_params": params, "agent_ref": agent_ref}
    (root / "tasks.jsonl").write_text((json.dumps(row) + "\n") * rollouts)
    return ["--config", "config.yaml", "--input", "tasks.jsonl", "--output", "rollouts.jsonl", "--concurrency", "16"]


@contextmanager
def start(environment: RayEnvironment, root: Path, mark: dict[str, str], *words: str) -> Iterator[Any]:
    """Run a program with its output in `log`."""
    with (root / "log").open("a") as log:
        process = subprocess.Popen(
            [environment.bin / words[0], *words[1:]],
            cwd=root,
            env={**environment.variables, **mark},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_until(happened: Any, root: Path, what: str) -> Any:
    """Return what `happened` returns once it is true."""
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at:
        if found := happened():
            return found
        time.sleep(0.2)
    return pytest.fail(f"{what} did not happen in time:\n{(root / 'log').read_text()[-3000:]}")


def count_rows(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_two_thousand_rollouts_survive_the_death_of_a_node(environment, tmp_path, mark):
    words = ["eval", "run", *write_servers(tmp_path, ROLLOUTS, num_replicas=2), f"++head_server.port={free_port()}"]
    output = tmp_path / "rollouts.jsonl"
    with two_nodes(environment) as cluster:
        words.append(f"+ray_head_node_address={cluster.address}")
        with start(environment, tmp_path, mark, "gym", *words) as process:
            wait_until(lambda: count_rows(output) >= ROLLOUTS * 0.4 or process.poll(), tmp_path, "the first rollouts")
            cluster.kill_second()
            code = process.wait(PATIENCE_S)
        if code:  # what could not be played within its attempts is played now
            with start(environment, tmp_path, mark, "gym", *words, "--resume") as process:
                code = process.wait(PATIENCE_S)
        log = (tmp_path / "log").read_text()
        assert code == 0, log[-3000:]
        assert wait_until_gone(mark) == []
    rows = list(read_rows(output))
    assert len({(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows}) == len(rows) == ROLLOUTS
    assert Counter(row["reward"] for row in rows) == {SESSION_REWARD: ROLLOUTS}
    assert len({row["pid"] for row in rows}) >= 2
    assert "server 'counting.replica" in log
    assert "session_lost" in log
    assert count_rows(tmp_path / "rollouts_failures.jsonl") == 0


def read_status(environment: RayEnvironment, root: Path, port: int, name: str = "counting") -> list[dict[str, Any]]:
    words = [environment.bin / "gym", "env", "status", "--json", f"++head_server.port={port}"]
    shown = subprocess.run(words, cwd=root, env=environment.variables, capture_output=True, text=True)
    listed = json.loads(shown.stdout or "[]")
    return [server for server in listed if server["process_name"] == name]


def test_servers_that_are_started_alone_are_shown_come_back_and_end(environment, cluster, tmp_path, mark):
    write_servers(tmp_path, 1, num_replicas=2, resources={"second": 1}, node_labels={"zone": "second"})
    port = free_port()
    words = ["env", "start", "--config", "config.yaml", f"++head_server.port={port}", f"++access_token={SECRET}"]
    words.append(f"+ray_head_node_address={cluster.address}")
    with start(environment, tmp_path, mark, "gym", *words) as process:

        def list_both() -> list[dict[str, Any]]:
            listed = read_status(environment, tmp_path, port)
            return listed if len(listed) == 2 else []

        servers = wait_until(list_both, tmp_path, "the start")
        assert all(server["status"] == "success" and server["node"] for server in servers)
        lost = servers[0]
        psutil.Process(lost["pid"]).kill()

        def is_back() -> bool:
            ids = {server["replica"] for server in read_status(environment, tmp_path, port)}
            return len(ids) == 2 and lost["replica"] not in ids

        wait_until(is_back, tmp_path, "the return")
        process.terminate()
        process.wait(PATIENCE_S)
    assert wait_until_gone(mark) == []
    written = [path for path in Path(environment.folder).rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]


def test_replicas_of_a_model_know_the_policy_version_also_those_that_are_started_later(
    environment, cluster, tmp_path, mark
):
    model = {"entrypoint": "app.py", "replies": ["hei"], "placement": "ray", "num_replicas": 2}
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump({"policy_model": {"responses_api_models": {"replay_model": model}}})
    )
    head = BaseServerConfig(host="127.0.0.1", port=free_port())
    words = ["env", "start", "--config", "config.yaml", f"++head_server.port={head.port}"]
    words.append(f"+ray_head_node_address={cluster.address}")

    def list_replicas() -> dict[str, dict[str, Any]]:
        listed = read_status(environment, tmp_path, head.port, "policy_model")
        return {server["replica"]: server for server in listed if server["status"] == "success"}

    def read_versions() -> dict[str, int | None]:
        versions = {}
        for replica, server in list_replicas().items():
            with suppress(OSError), urllib.request.urlopen(f"{server['url']}/policy_version", timeout=10) as answer:
                versions[replica] = json.loads(answer.read())["version"]
        return versions

    with start(environment, tmp_path, mark, "gym", *words) as process:
        wait_until(lambda: len(list_replicas()) == 2, tmp_path, "the start")
        asyncio.run(announce(4, head_server_config=head))
        before = list_replicas()
        assert read_versions() == dict.fromkeys(before, 4)
        lost = min(before)
        psutil.Process(before[lost]["pid"]).kill()

        def is_told() -> bool:
            versions = read_versions()
            return lost not in versions and list(versions.values()) == [4, 4]

        wait_until(is_told, tmp_path, "the announcement to the replica that came back")
        process.terminate()
        process.wait(PATIENCE_S)
    assert wait_until_gone(mark) == []


def test_a_server_that_cannot_start_on_its_node_ends_the_run_with_its_last_lines(environment, cluster, tmp_path, mark):
    words = write_servers(tmp_path, 1)
    (tmp_path / "resources_servers/counting/app.py").write_text("raise ValueError('no such luck')")
    words += [f"++head_server.port={free_port()}", f"+ray_head_node_address={cluster.address}"]
    with start(environment, tmp_path, mark, "gym", "eval", "run", *words) as process:
        assert process.wait(PATIENCE_S) == 1
    log = (tmp_path / "log").read_text()
    assert "server 'counting' exited with code 1" in log
    assert "no such luck" in log
    assert wait_until_gone(mark) == []


def test_the_commands_of_the_guide_work(environment, cluster, tmp_path, mark):
    guide = (PARENT_DIR / "docs/guides/scale-out-ray.md").read_text()
    (tmp_path / "on_ray.yaml").write_text(re.search(r'```yaml title="on_ray.yaml"\n(.*?)```', guide, re.S)[1])
    (command,) = re.findall(r"```console\n\$ gym (.*?)```", guide, re.S)
    words = shlex.split(command.replace("\\\n", " ").replace("HEAD:6379", cluster.address))
    with start(environment, tmp_path, mark, "gym", *words, f"++head_server.port={free_port()}") as process:
        code = process.wait(PATIENCE_S)
    log = (tmp_path / "log").read_text()
    assert code == 0, log[-3000:]
    assert "5 scored of 5 requested" in log


def test_without_a_named_cluster_one_is_started_and_ends_with_the_run(environment, tmp_path, mark):
    words = [*write_servers(tmp_path, 5), f"++head_server.port={free_port()}", "++default_placement=ray"]
    with start(environment, tmp_path, mark, "gym", "eval", "run", *words) as process:
        code = process.wait(PATIENCE_S)
    assert code == 0, (tmp_path / "log").read_text()[-3000:]
    assert [row["reward"] for row in read_rows(tmp_path / "rollouts.jsonl")] == [SESSION_REWARD] * 5
    assert wait_until_gone(mark) == []


def test_a_trainer_starts_servers_and_plays_from_inside_an_actor_of_its_cluster(environment, cluster, tmp_path, mark):
    write_servers(tmp_path, 8, num_replicas=2)
    (tmp_path / "trainer.py").write_text(RUN_HELPER)
    words = ["trainer.py", cluster.address, str(free_port())]
    with start(environment, tmp_path, mark, "python", *words) as process:
        code = process.wait(PATIENCE_S)
    log = (tmp_path / "log").read_text()
    assert code == 0, log[-3000:]
    assert json.loads(re.search(r"PLAYED (.*)", log)[1]) == [[number, SESSION_REWARD] for number in range(8)]
    assert re.search(r"STILL UP [12]", log)
    assert wait_until_gone(mark) == []
