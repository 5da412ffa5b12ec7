# SPDX-License-Identifier: Apache-2.0
"""`gym eval run --workers N --on ray`, on a real cluster of two nodes, one of which does not live to the end."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from tests.support.eval_runs import Runner, fake_endpoint, planned, write_tasks
from tests.support.small_servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.exhaustive, pytest.mark.timeout(900)]

# A busy machine takes longer to start a node than Ray waits for it.
PATIENT = {"RAY_raylet_start_wait_time_s": "180"}
CLUSTER = """
import json, sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
cluster.wait_for_nodes()
print(json.dumps(cluster.address), flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes.pop(), allow_graceful=False)
    print(json.dumps("removed"), flush=True)
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The Python of an environment that has Ray; others do not need it, and it is large."""
    if importlib.util.find_spec("ray") is not None:
        return Path(sys.executable)
    place, uv = tmp_path_factory.mktemp("ray") / "venv", Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, place], check=True)
    words = [uv, "pip", "install", "-q", "--compile-bytecode", "--python", place / "bin/python"]
    installed = subprocess.run(
        [*words, "-c", "constraints.txt", "-e", ".[ray]"], cwd=PARENT_DIR, capture_output=True, text=True
    )
    if installed.returncode:
        pytest.skip(f"Ray cannot be installed here: {installed.stderr[-500:]}")
    return place / "bin/python"


@pytest.fixture
def variables() -> Iterator[dict[str, str]]:
    """An environment apart from the clusters of others; the paths of sockets have little room."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        yield {**os.environ, "HOME": folder, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", **PATIENT}


@contextmanager
def two_nodes(python: Path, variables: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A cluster of two nodes with two CPUs each, and a head node without any; a line to it removes a node."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([python, "-c", CLUSTER], env=variables, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.stdin.close()


def test_a_node_that_dies_costs_no_rollout(tmp_path, python, variables):
    tasks, errors = write_tasks(tmp_path / "tasks.jsonl", 600), tmp_path / "errors.txt"
    with fake_endpoint() as endpoint, two_nodes(python, variables) as cluster:
        endpoint.set(latency_ms=100)
        address = json.loads(cluster.stdout.readline())
        runner = Runner(tmp_path, endpoint, free_port())  # Ray takes ports of the range that the system hands out
        words = ["-i", str(tasks), "--workers", "2", "--on", "ray", "--concurrency", "16"]
        command = [python, "-m", "nemo_gym.cli.main", *runner.command(*words), f"++ray_head_node_address={address}"]
        with errors.open("wb") as file:
            process = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL, stderr=file)
        ends = time.monotonic() + 300
        while not runner.output.exists() or runner.output.read_bytes().count(b"\n") < 150:
            assert process.poll() is None, errors.read_text()
            assert time.monotonic() < ends, errors.read_text()
            time.sleep(0.05)
        print("remove", file=cluster.stdin, flush=True)
        assert json.loads(cluster.stdout.readline()) == "removed"
        assert process.wait(timeout=300) == 0, errors.read_text()
    assert sorted(runner.keys()) == planned(600)
    assert runner.keys("failures") == []
    assert "was lost with its Ray actor" in errors.read_text()
