# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` as a user runs it, against an endpoint that misbehaves on demand: every rollout is accounted for."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR

AGENT = "example_single_tool_call_simple_agent"
EXAMPLES = PARENT_DIR / "resources_servers" / "example_single_tool_call" / "data" / "example.jsonl"
GYM = [sys.executable, "-m", "nemo_gym.cli.main"]
# Garbage so often that repeated attempts cannot absorb all of it.
FAULTS = {"429": 0.05, "500": 0.05, "reset": 0.05, "garbage": 0.5}
KINDS = {"model_endpoint", "model_reply_invalid", "timeout"}


class Endpoint:
    """The project's own fake model endpoint, in a process of its own."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perf.fake_endpoint", "--port", str(port)], cwd=PARENT_DIR
        )
        for _ in range(200):
            try:
                urllib.request.urlopen(f"{self.url}/v1/models", timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the fake endpoint did not start")

    def set(self, **settings: object) -> None:
        body = json.dumps(settings).encode()
        urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/config", data=body, method="POST"), timeout=5
        ).close()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def endpoint(unused_tcp_port_factory):
    made = Endpoint(unused_tcp_port_factory())
    yield made
    made.stop()


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """60 tasks that differ."""
    rows = [json.loads(line) for line in EXAMPLES.read_text().splitlines()]
    lines = [json.dumps({**rows[number % len(rows)], "number": number}) for number in range(60)]
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


class Runner:
    def __init__(self, folder: Path, endpoint: Endpoint, head_port: int) -> None:
        self.folder, self.output = folder, folder / "r.jsonl"
        self._flags = [
            "--resources-server",
            "example_single_tool_call",
            "--model-type",
            "openai_model",
            "--model",
            "m",
            "--model-url",
            f"{endpoint.url}/v1",
            "--model-api-key",
            "sk-secret",
            f"++head_server.port={head_port}",
        ]

    def command(self, *arguments: str) -> list[str]:
        return [*GYM, "eval", "run", *self._flags, "-o", str(self.output), "-a", AGENT, *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), cwd=self.folder, capture_output=True, text=True, timeout=100, check=False
        )

    def keys(self, name: str = "r.jsonl") -> list[tuple[int, int]]:
        path = self.folder / name
        if not path.exists():
            return []
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]


@pytest.fixture
def runner(tmp_path, endpoint, unused_tcp_port_factory) -> Runner:
    return Runner(tmp_path, endpoint, unused_tcp_port_factory())


def planned(tasks: int, repeats: int) -> list[tuple[int, int]]:
    return [(task, rollout) for task in range(tasks) for rollout in range(repeats)]


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
def test_faults_become_named_failures_and_a_resumed_run_reaches_all(runner, tasks, endpoint):
    endpoint.set(faults=FAULTS)
    faulty = runner.run("-i", str(tasks), "--timeout", "20")
    scored, failed = runner.keys(), runner.keys("r_failures.jsonl")
    assert sorted([*scored, *failed]) == planned(60, 1), faulty.stderr
    assert faulty.returncode == 1
    failures = [
        json.loads(line)["_ng_failure"] for line in (runner.folder / "r_failures.jsonl").read_text().splitlines()
    ]
    assert {failure["kind"] for failure in failures} <= KINDS
    assert sum(failure["kind"] == "model_reply_invalid" for failure in failures) > 0
    assert all(failure["message"] and failure["attempts"] >= 1 for failure in failures)
    endpoint.set(faults={})
    resumed = runner.run("-i", str(tasks), "--timeout", "20", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert sorted(runner.keys()) == planned(60, 1)
    assert runner.keys()[: len(scored)] == scored, "what was scored was not played again"


@pytest.mark.slow
def test_an_endpoint_that_is_down_stops_the_run_early_with_the_cause_on_top(runner, tasks, endpoint):
    endpoint.set(faults={"500": 1.0})
    done = runner.run("-i", str(tasks), "--num-repeats", "3", "--max-failure-rate", "0.5", "--concurrency", "60")
    assert done.returncode == 1
    assert "most common cause" in done.stderr
    assert "model_endpoint" in done.stderr
    assert runner.keys() == []


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_loses_and_repeats_nothing(runner, tasks, endpoint):
    endpoint.set(latency_ms=30)
    moments = random.Random(7)
    arguments = ["-i", str(tasks), "--num-repeats", "10", "--concurrency", "8"]
    for attempt in range(4):
        resume = ["--resume"] if attempt else []
        process = subprocess.Popen(
            runner.command(*arguments, *resume), cwd=runner.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and not runner.output.exists():
            time.sleep(0.05)
        time.sleep(moments.uniform(0.0, 3.0))
        process.kill()
        process.wait()
    endpoint.set(latency_ms=0)
    done = runner.run(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    assert sorted(runner.keys()) == planned(60, 10)


@pytest.mark.slow
def test_one_ctrl_c_lets_what_runs_finish_and_tells_how_to_go_on(runner, tasks, endpoint):
    endpoint.set(latency_ms=200)
    process = subprocess.Popen(
        runner.command("-i", str(tasks), "--concurrency", "4"), cwd=runner.folder, stderr=subprocess.PIPE, text=True
    )
    while not runner.output.exists() or not runner.output.read_text():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in errors
    assert not (runner.folder / "r_failures.jsonl").exists(), "what ran was allowed to finish"
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


@pytest.mark.slow
def test_the_seeds_commands_collect_from_servers_that_run(runner, tasks, endpoint, unused_tcp_port):
    start = subprocess.Popen(
        [*GYM, "env", "start", *runner._flags[:-1], f"++head_server.port={unused_tcp_port}"],
        cwd=runner.folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in start.stderr:
            if "servers ready" in line:
                break
        ng = Path(sys.executable).parent / "ng_collect_rollouts"
        done = subprocess.run(
            [
                str(ng),
                f"+agent_name={AGENT}",
                f"+input_jsonl_fpath={tasks}",
                f"+output_jsonl_fpath={runner.output}",
                "+limit=7",
                "+num_repeats=null",
                "+num_samples_in_parallel=null",
                "+responses_create_params={temperature: 0.7, max_tokens: 2048}",
                f"+head_server.port={unused_tcp_port}",
            ],
            cwd=runner.folder,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert len(runner.keys()) == 7
        row = json.loads(runner.output.read_text().splitlines()[0])
        assert row["responses_create_params"]["temperature"] == 0.7
        assert row["responses_create_params"]["max_output_tokens"] == 2048
    finally:
        start.send_signal(signal.SIGINT)
        start.communicate(timeout=30)
