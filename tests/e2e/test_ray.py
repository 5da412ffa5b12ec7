# SPDX-License-Identifier: Apache-2.0
"""Servers that use `@ray.remote`, with a real cluster: in the collector's process and in processes of their own."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from nemo_gym._util.jsonl_files import read_rows
from tests.support.ray_clusters import RayEnvironment, ray_environment, wait_until_gone
from tests.support.small_servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.exhaustive, pytest.mark.timeout(900)]

APP = """
import ray

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer


@ray.remote(scheduling_strategy="SPREAD")
def square(number):
    return number * number


class Verified(BaseVerifyResponse):
    cluster: str


class Squares(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> Verified:
        squares = ray.get([square.remote(number) for number in range(3)])
        cluster = ray.get_runtime_context().gcs_address
        return Verified(**body.model_dump(), reward=float(squares == [0, 1, 4]), cluster=cluster)


if __name__ == "__main__":
    Squares.run_webserver()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Iterator[RayEnvironment]:
    with ray_environment(tmp_path_factory.mktemp("ray")) as found:
        yield found


@contextmanager
def ray_cluster(environment: RayEnvironment):
    """The addresses of a cluster: of its head node and of its client server."""
    head, client = free_port(), free_port()
    words = ["start", "--head", "--block", f"--port={head}", f"--ray-client-server-port={client}", "--num-cpus=2"]
    process = subprocess.Popen(
        [environment.bin / "ray", *words, "--include-dashboard=false", "--disable-usage-stats"],
        env=environment.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ray runtime started" in line:
                break
        else:
            pytest.fail(f"Ray did not start:\n{''.join(lines)}")
        yield f"127.0.0.1:{head}", f"ray://127.0.0.1:{client}"
    finally:
        # Killed: asked to end, it takes half a minute to drain.
        for child in (*psutil.Process(process.pid).children(recursive=True), process):
            child.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def cluster(environment):
    with ray_cluster(environment) as addresses:
        # A client's server has half a minute to start as well, which the first one on a busy machine does not meet.
        join = [environment.bin / "python", "-c", f"import ray; ray.init({addresses[1]!r})"]
        for _ in range(5):
            joined = subprocess.run(join, env=environment.variables, capture_output=True, text=True)
            if joined.returncode == 0:
                break
        assert joined.returncode == 0, joined.stderr
        yield addresses


def write_servers(root: Path) -> list[str]:
    """Write a server that shares the collector's process, one that does not, and a task for each."""
    config = {
        "policy_model": {"responses_api_models": {"replay_model": {"entrypoint": "app.py", "replies": ["hello"]}}}
    }
    rows = []
    for name, placement in (("near", "inline"), ("far", "process")):
        folder = root / "resources_servers" / name
        folder.mkdir(parents=True)
        (folder / "app.py").write_text(APP)
        server = {"entrypoint": "app.py", "domain": "other", "placement": placement}
        agent = {
            "entrypoint": "app.py",
            "resources_server": {"type": "resources_servers", "name": name},
            "model_server": {"type": "responses_api_models", "name": "policy_model"},
        }
        config[name] = {"resources_servers": {name: server}}
        config[f"{name}_agent"] = {"responses_api_agents": {"simple_agent": agent}}
        reference = {"type": "responses_api_agents", "name": f"{name}_agent"}
        rows.append({"responses_create_params": {"input": "hello"}, "agent_ref": reference})
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    (root / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["--config", "config.yaml", "--input", "tasks.jsonl", "--output", "rollouts.jsonl"]


def run(
    environment: RayEnvironment, root: Path, *overrides: str, mark: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`gym eval run`, played by both servers."""
    return run_words(environment, root, [*write_servers(root), *overrides], mark)


def run_words(
    environment: RayEnvironment, root: Path, words: list[str], mark: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [environment.bin / "gym", "eval", "run", *words, f"++head_server.port={free_port()}"],
        cwd=root,
        env={**environment.variables, **(mark or {})},
        capture_output=True,
        text=True,
        timeout=600,
    )


def clusters_of(root: Path) -> list[str]:
    rows = list(read_rows(root / "rollouts.jsonl"))
    assert [row["reward"] for row in rows] == [1.0, 1.0]
    return [row["cluster"].rpartition(":")[2] for row in rows]


@pytest.mark.parametrize("kind", [0, 1], ids=["head node", "client server"])
def test_every_server_joins_the_cluster_that_is_named(environment, cluster, tmp_path, kind):
    ran = run(environment, tmp_path, f"+ray_head_node_address={cluster[kind]}")
    assert ran.returncode == 0, ran.stderr
    head_port = cluster[0].rpartition(":")[2]
    assert clusters_of(tmp_path) == [head_port, head_port]
    assert "Started a local Ray instance" not in ran.stderr


@pytest.mark.parametrize("kind", [0, 1], ids=["head node", "client server"])
def test_a_port_of_the_other_kind_is_told_apart(environment, cluster, tmp_path, kind):
    ports = [address.rpartition(":")[2] for address in cluster]
    swapped = [f"127.0.0.1:{ports[1]}", f"ray://127.0.0.1:{ports[0]}"][kind]
    ran = run(environment, tmp_path, f"+ray_head_node_address={swapped}")
    assert ran.returncode == 1
    assert "the port is not that of Ray's" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_a_name_all_share_one_new_cluster_which_ends_with_the_run(environment, tmp_path):
    mark = {"NEMO_GYM_TEST_RAY": str(tmp_path)}
    ran = run(environment, tmp_path, mark=mark)
    assert ran.returncode == 0, ran.stderr
    assert len(set(clusters_of(tmp_path))) == 1
    assert "starting Ray on this machine for" in ran.stderr
    assert wait_until_gone(mark) == []


OWN_APP = APP.replace("    return number * number", "    import cowsay\n\n    return cowsay and number * number")


def test_functions_of_a_server_with_its_own_environment_have_what_it_has(environment, tmp_path):
    words = write_servers(tmp_path)
    folder = tmp_path / "resources_servers" / "far"
    (folder / "app.py").write_text(OWN_APP)
    (folder / "requirements.txt").write_text("cowsay==6.1\n")
    ran = run_words(environment, tmp_path, [*words, f"++cache_dir={tmp_path / 'cache'}"])
    assert ran.returncode == 0, ran.stderr
    assert len(set(clusters_of(tmp_path))) == 1
