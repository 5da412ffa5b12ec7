# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` with an endpoint that is not there: it is said soon and once."""

import signal
import subprocess

import pytest

from tests.support.eval_runs import Endpoint, Runner, fake_endpoint, planned, write_tasks

pytestmark = pytest.mark.slow


def test_a_run_without_a_model_ends_at_once_and_the_same_command_plays_once_there_is_one(
    tmp_path, unused_tcp_port_factory
):
    tasks, nobody = write_tasks(tmp_path / "tasks.jsonl", 3), Endpoint(unused_tcp_port_factory())
    refused = Runner(tmp_path, nobody, unused_tcp_port_factory()).run("-i", str(tasks))
    assert refused.returncode == 1
    for part in (f"{nobody.url}/v1 (policy_model.", "connection refused", "hint:", "--wait-for-model"):
        assert part in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list(tmp_path.glob("r*")), "nothing half-begun is left"
    with fake_endpoint() as endpoint:
        runner = Runner(tmp_path, endpoint, unused_tcp_port_factory())
        done = runner.run("-i", str(tasks), "--resume")
        assert done.returncode == 0, done.stderr
        assert sorted(runner.keys()) == planned(3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_waits_for_its_model_counts_and_a_signal_ends_it(tmp_path, unused_tcp_port_factory, number):
    nobody = Endpoint(unused_tcp_port_factory())
    runner = Runner(tmp_path, nobody, unused_tcp_port_factory())
    tasks = write_tasks(tmp_path / "tasks.jsonl", 3)
    process = runner.start("-i", str(tasks), "--wait-for-model", "600", stderr=subprocess.PIPE)
    with process.stderr:
        for line in process.stderr:
            if line.startswith(f"waiting for the model at {nobody.url}/v1: 0 s, connection refused"):
                break
        process.send_signal(number)
        assert "stopped before any rollout ran" in process.stderr.read()
    assert process.wait(timeout=300) == 130
    assert not list(tmp_path.glob("r*"))
