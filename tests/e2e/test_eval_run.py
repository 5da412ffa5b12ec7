# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` against an endpoint that misbehaves on demand: every rollout is accounted for."""

import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.eval_runs import AGENT, CALLS_PER_ROLLOUT, Runner, fake_endpoint, planned, write_tasks

FAULTS = ("429", "500", "reset", "garbage", "hang")
KIND_OF = {
    "429": "model_endpoint",
    "500": "model_endpoint",
    "reset": "model_endpoint",
    "garbage": "model_reply_invalid",
    "hang": "timeout",
}


@pytest.fixture
def endpoint():
    with fake_endpoint() as made:
        yield made


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """60 tasks that differ."""
    return write_tasks(tmp_path / "tasks.jsonl", 60)


@pytest.fixture
def runner(tmp_path, endpoint, unused_tcp_port_factory) -> Runner:
    return Runner(tmp_path, endpoint, unused_tcp_port_factory())


@pytest.mark.slow
def test_a_run_scores_every_rollout_and_says_so(runner, tasks):
    done = runner.run("-i", str(tasks), "--num-repeats", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(runner.keys()) == planned(60, 2)
    summary = json.loads(done.stdout)
    assert summary["counts"]["scored"] == summary["counts"]["requested"] == 120
    assert summary["agents"][0]["key_metrics"]["mean/reward"] == 1.0
    metrics = json.loads((runner.folder / "r_aggregate_metrics.json").read_text())
    assert metrics[0]["agent_ref"] == {"name": AGENT}
    for path in runner.folder.glob("r*"):
        assert path.is_dir() or "sk-secret" not in path.read_text()


@pytest.mark.slow
def test_every_fault_of_the_endpoint_becomes_a_failure_of_its_own_kind(runner, endpoint):
    fault_of = dict(enumerate(FAULTS))
    tasks = write_tasks(runner.folder / "t.jsonl", 20, {task: f"please {fault}" for task, fault in fault_of.items()})
    endpoint.set(marked_faults={f"please {fault}": fault for fault in FAULTS})
    done = runner.run("-i", str(tasks), "--timeout", "8")
    assert done.returncode == 1, done.stderr
    found = {row["_ng_task_index"]: row for row in runner.rows("failures")}
    assert {task: row["_ng_failure"]["kind"] for task, row in found.items()} == {
        task: KIND_OF[fault] for task, fault in fault_of.items()
    }
    assert all(row["_ng_failure"]["retryable"] and row["_ng_failure"]["message"] for row in found.values())
    assert not any("reward" in row for row in found.values())
    assert sorted(runner.keys()) == planned(20)[len(FAULTS) :]
    assert "15 scored of 20 requested, 5 failed" in done.stdout


@pytest.mark.slow
def test_faults_become_named_failures_and_a_resumed_run_reaches_all(runner, tasks, endpoint):
    endpoint.set(faults=dict.fromkeys(FAULTS, 0.05))
    arguments = ["-i", str(tasks), "--num-repeats", "2", "--timeout", "4", "--concurrency", "64"]
    faulty = runner.run(*arguments)
    scored, failed = runner.keys(), runner.keys("failures")
    assert sorted([*scored, *failed]) == planned(60, 2), faulty.stderr
    assert faulty.returncode == 1, "some call hung, and nothing but the deadline ends that"
    failures = [row["_ng_failure"] for row in runner.rows("failures")]
    kinds = Counter(failure["kind"] for failure in failures)
    assert kinds.keys() <= set(KIND_OF.values())
    assert kinds["timeout"] > 0
    assert all(failure["message"] and failure["attempts"] >= 1 for failure in failures)
    endpoint.set(faults={})
    endpoint.calls(then_forget=True)
    resumed = runner.run(*arguments, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert sorted(runner.keys()) == planned(60, 2)
    assert runner.keys()[: len(scored)] == scored
    assert endpoint.calls() == CALLS_PER_ROLLOUT * len(failed), "what was scored is not played again"


@pytest.mark.slow
def test_an_endpoint_that_is_down_stops_the_run_early_with_the_cause_on_top(runner, tasks, endpoint):
    endpoint.set(faults={"500": 1.0})
    done = runner.run("-i", str(tasks), "--num-repeats", "3", "--max-failure-rate", "0.5", "--concurrency", "60")
    assert done.returncode == 1
    assert "most common cause" in done.stderr
    assert "model_endpoint" in done.stderr
    assert runner.keys() == []


@pytest.mark.slow
def test_one_ctrl_c_lets_what_runs_finish_and_tells_how_to_go_on(runner, tasks, endpoint):
    endpoint.set(latency_ms=200)
    process = runner.start("-i", str(tasks), "--concurrency", "4", stderr=subprocess.PIPE)
    while not runner.output.exists() or not runner.output.read_text():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    with process.stderr:
        errors = process.stderr.read()
    assert process.wait(timeout=300) == 130
    assert "--resume" in errors
    assert not (runner.folder / "r_failures.jsonl").read_bytes(), "what ran was allowed to finish"
    assert 0 < len(runner.keys()) < 60


@pytest.mark.slow
def test_bad_rows_are_listed_together_and_nothing_is_written(runner, tasks):
    bad = runner.folder / "bad.jsonl"
    lines = tasks.read_text().splitlines()
    bad.write_text("\n".join([lines[0], "not json", '{"no": "params"}', lines[1]]) + "\n")
    done = runner.run("-i", str(bad))
    assert done.returncode == 1
    assert "bad.jsonl" in done.stderr
    assert "2" in done.stderr
    assert "3" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(runner.folder.glob("r.jsonl*"))
    assert not list(runner.folder.glob("r_*"))
