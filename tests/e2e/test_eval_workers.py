# SPDX-License-Identifier: Apache-2.0
"""`gym eval run --workers N`: what one process would have recorded, whatever becomes of the workers."""

import asyncio
import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from nemo_gym.policy_versions import PolicyVersionError, announce
from tests.support.eval_runs import AGENT, Endpoint, Runner, fake_endpoint, planned, write_tasks
from tests.support.warm_start import WarmProcess

pytestmark = pytest.mark.slow

APP = """
import os, sys
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer

{on_import}

class Answer(BaseVerifyResponse):
    pid: int

class WhoAmI(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> Answer:
        return Answer(**body.model_dump(), reward=1.0, pid=os.getpid())

if __name__ == "__main__":
    WhoAmI.run_webserver()
"""
PATIENCE_S = 300


@pytest.fixture
def endpoint():
    with fake_endpoint() as made:
        yield made


@pytest.fixture
def runner(tmp_path, endpoint, unused_tcp_port_factory) -> Runner:
    return Runner(tmp_path, endpoint, unused_tcp_port_factory())


def list_workers(process: WarmProcess) -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if "worker-" in " ".join(child.cmdline())]


def wait_for_rows(runner: Runner, process: WarmProcess, number: int) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not runner.output.exists() or runner.output.read_bytes().count(b"\n") < number:
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < ends
        time.sleep(0.02)


# --- workers that die -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tasks", "kills"), [(300, 1), pytest.param(4000, 3, marks=pytest.mark.exhaustive)])
def test_workers_that_are_killed_cost_no_rollout_and_none_is_recorded_twice(runner, endpoint, tasks, kills):
    endpoint.set(latency_ms=50)
    path, errors = write_tasks(runner.folder / "tasks.jsonl", tasks), runner.folder / "errors.txt"
    with errors.open("wb") as file:
        process = runner.start("-i", str(path), "--workers", "2", "--concurrency", "32", stderr=file)
    for number in range(kills):
        wait_for_rows(runner, process, (number + 1) * tasks // (kills + 2))
        list_workers(process)[0].kill()
    assert process.wait(timeout=300) == 0, errors.read_text()
    assert sorted(runner.keys()) == planned(tasks)
    assert runner.keys("failures") == []
    assert errors.read_text().count("was killed by SIGKILL") == kills


def test_a_rollout_that_kills_its_worker_fails_by_name_and_the_others_are_scored(tmp_path, endpoint, unused_tcp_port):
    runner = make_environment(tmp_path, endpoint, unused_tcp_port)
    (tmp_path / "resources_servers" / "whoami" / "app.py").write_text(
        APP.format(on_import="").replace(
            "        return Answer", "        " + KILL_ON_SEVEN + "\n        return Answer"
        )
    )
    done = runner.run("-i", str(write_tasks(tmp_path / "tasks.jsonl", 30, {7: "number seven"})), "--workers", "2")
    assert done.returncode == 1, done.stderr
    (failure,) = runner.rows("failures")
    assert (failure["_ng_task_index"], failure["_ng_failure"]["kind"]) == (7, "worker_died")
    assert sorted(runner.keys()) == [key for key in planned(30) if key != (7, 0)]


@pytest.mark.exhaustive
def test_a_server_that_blocks_its_worker_is_interrupted_at_the_deadline(tmp_path, endpoint, unused_tcp_port):
    runner = make_environment(tmp_path, endpoint, unused_tcp_port)
    block = "        if 'number seven' in str(body.responses_create_params.input): __import__('time').sleep(60)\n"
    (tmp_path / "resources_servers" / "whoami" / "app.py").write_text(
        APP.format(on_import="").replace("        return Answer", f"{block}        return Answer")
    )
    tasks = write_tasks(tmp_path / "tasks.jsonl", 8, {7: "number seven"})
    done = runner.run("-i", str(tasks), "--workers", "2", "--timeout", "6", "--concurrency", "2")
    assert done.returncode == 1, done.stderr
    failed = {row["_ng_task_index"]: row["_ng_failure"] for row in runner.rows("failures")}
    assert failed[7]["kind"] == "timeout"
    assert "blocked" in failed[7]["message"] or "blocks" in failed[7]["message"]
    assert sorted([*runner.keys(), *runner.keys("failures")]) == planned(8)


KILL_ON_SEVEN = "'number seven' in str(body.responses_create_params.input) and os.kill(os.getpid(), 9)"


@pytest.mark.thorough
def test_a_coordinator_that_is_killed_leaves_no_worker_and_the_run_is_resumed(runner, endpoint):
    endpoint.set(latency_ms=100)
    arguments = ["-i", str(write_tasks(runner.folder / "tasks.jsonl", 120)), "--workers", "2", "--concurrency", "8"]
    process = runner.start(*arguments, stderr=subprocess.DEVNULL)
    wait_for_rows(runner, process, 20)
    workers = list_workers(process)
    assert len(workers) == 2
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=300)
    assert not alive
    before = runner.keys()
    endpoint.set(latency_ms=0)
    done = runner.run(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    assert runner.keys()[: len(before)] == before
    assert sorted(runner.keys()) == planned(120)


# --- policy versions --------------------------------------------------------------------------------------------------


def announce_version(runner: Runner, process: WarmProcess, version: int) -> None:
    """Announce as a trainer does that may come before the servers are up."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        try:
            return asyncio.run(announce(version, head_server_config=runner.head))
        except PolicyVersionError:
            assert process.poll() is None, "it ended too early"
            assert time.monotonic() < ends
            time.sleep(0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [1, 2])
def test_rollouts_of_every_worker_wait_for_their_policy_version_and_carry_it(runner, workers):
    path, errors = write_tasks(runner.folder / "tasks.jsonl", 16), runner.folder / "errors.txt"
    bounds = "++max_policy_staleness=0", "++policy_batch_size=8"
    with errors.open("wb") as file:
        process = runner.start("-i", str(path), "--workers", str(workers), *bounds, stderr=file)
    announce_version(runner, process, 3)
    wait_for_rows(runner, process, 8)
    if workers > 1:
        list_workers(process)[0].kill()  # the one that takes its place has to be told too
    announce_version(runner, process, 4)
    assert process.wait(timeout=500) == 0, errors.read_text()
    assert sorted(runner.keys()) == planned(16)
    said = [row["_ng_policy_versions"] for row in runner.rows()]
    assert said == [{"start": version, "end": version, "straddles": False} for version in [3] * 8 + [4] * 8]


# --- the same results -------------------------------------------------------------------------------------------------


CHANCE_ENDINGS = ("_id", "_at", "_ms")


def forget_chance(value: Any) -> Any:
    """Leave out what differs between two runs of the same rollouts: times and random ids."""
    if isinstance(value, dict):
        chance = ("id", "at", "elapsed_s", "timestamp")
        kept = {key: item for key, item in value.items() if key not in chance and not key.endswith(CHANCE_ENDINGS)}
        return {key: forget_chance(item) for key, item in kept.items()}
    return [forget_chance(item) for item in value] if isinstance(value, list) else value


def by_key(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(forget_chance(row), sort_keys=True) for row in rows)


ALL_FAULTS = {f"please {fault}": fault for fault in ("500", "garbage", "hang", "400")}
SKIP_VERIFICATION = f"++{AGENT}.responses_api_agents.simple_agent.skip_verification=true"


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({"marked_faults": {"please 400": "400"}}, []),
        pytest.param({"marked_faults": ALL_FAULTS}, ["--timeout", "20"], marks=pytest.mark.exhaustive),
        pytest.param({"faults": {"429": 0.1}}, ["--num-repeats", "3"], marks=pytest.mark.exhaustive),
        pytest.param({}, [SKIP_VERIFICATION], marks=pytest.mark.exhaustive),
        pytest.param(
            {},
            ["++observability_enabled=true", "++model_call_capture_dir={tmp_path}/calls"],
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["failure", "failures", "retries", "unverified", "observed"],
)
def test_two_workers_record_what_one_process_records(tmp_path, endpoint, unused_tcp_port, settings, arguments):
    endpoint.set(**settings)
    texts = {1: "please 500", 2: "please garbage", 3: "please hang", 4: "please 400"}
    tasks = write_tasks(tmp_path / "tasks.jsonl", 24, texts)
    runs = dict[int, Runner]()
    for workers in (1, 2):
        runs[workers] = runner = Runner(tmp_path, endpoint, unused_tcp_port, tmp_path / f"r{workers}.jsonl")
        words = [word.format(tmp_path=tmp_path) for word in arguments]
        done = runner.run("-i", str(tasks), "--workers", str(workers), *words)
        assert done.returncode == (1 if "marked_faults" in settings else 0), done.stderr
    one, two = runs[1], runs[2]
    assert by_key(one.rows()) == by_key(two.rows())
    assert by_key(one.rows("failures")) == by_key(two.rows("failures"))
    metrics = [json.loads((tmp_path / f"r{workers}_aggregate_metrics.json").read_text()) for workers in (1, 2)]
    assert metrics[0] == metrics[1]


# --- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_ctrl_c_lets_what_runs_finish_and_a_second_one_cancels_it(runner, endpoint, times):
    endpoint.set(latency_ms=400)
    tasks, errors = write_tasks(runner.folder / "tasks.jsonl", 60), runner.folder / "errors.txt"
    with errors.open("wb") as file:
        process = runner.start("-i", str(tasks), "--workers", "2", "--concurrency", "8", stderr=file)
    wait_for_rows(runner, process, 4)
    workers = list_workers(process)
    if times == 2:
        endpoint.set(latency_ms=60_000)  # what runs is still running when the second one comes
    process.send_signal(signal.SIGINT)
    if times == 2:
        ends = time.monotonic() + PATIENCE_S
        while "Ctrl-C again" not in errors.read_text():  # two signals at once would be one
            assert time.monotonic() < ends
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 130
    assert "--resume" in errors.read_text()
    assert not psutil.wait_procs(workers, timeout=300)[1]
    kinds = Counter(row["_ng_failure"]["kind"] for row in runner.rows("failures"))
    assert kinds.keys() == (set() if times == 1 else {"cancelled"})
    assert 0 < len(runner.keys()) < 60
    assert len(set(runner.keys())) == len(runner.keys())


@pytest.mark.thorough
def test_an_endpoint_that_refuses_the_key_ends_a_run_with_workers_early(runner, endpoint):
    endpoint.set(faults={"401": 1.0})
    done = runner.run("-i", str(write_tasks(runner.folder / "t.jsonl", 200)), "--workers", "2", "--concurrency", "4")
    assert done.returncode == 1
    assert "refuses this key" in done.stderr
    assert endpoint.calls() < 100


# --- servers of workers -----------------------------------------------------------------------------------------------


def make_environment(folder: Path, endpoint: Endpoint, port: int, on_import: str = "", **block: Any) -> Runner:
    """A runner of an environment of our own, whose verifier tells in which process it is."""
    server = folder / "resources_servers" / "whoami"
    server.mkdir(parents=True)
    (server / "app.py").write_text(APP.format(on_import=on_import))
    refs = {
        "resources_server": {"type": "resources_servers", "name": "whoami"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    agent = {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py", **refs}}}
    world = {"resources_servers": {"whoami": {"entrypoint": "app.py", "domain": "other", **block}}}
    (folder / "env.config.yaml").write_text(yaml.safe_dump({"whoami": world, "whoami_agent": agent}))
    runner = Runner(folder, endpoint, port)
    at = runner.flags.index("--resources-server")
    runner.flags[at : at + 2] = ["--config", str(folder / "env.config.yaml")]
    runner.agent = "whoami_agent"
    endpoint.set(tool_rounds=0)
    return runner


@pytest.mark.thorough
@pytest.mark.parametrize("run_once", [False, True])
def test_a_server_that_runs_once_serves_all_workers(tmp_path, endpoint, unused_tcp_port, run_once):
    runner = make_environment(tmp_path, endpoint, unused_tcp_port, run_once=run_once)
    process = runner.start("-i", str(write_tasks(tmp_path / "tasks.jsonl", 40)), "--workers", "2")
    assert process.wait(timeout=PATIENCE_S) == 0
    pids = {row["pid"] for row in runner.rows()}
    assert pids == {process.pid} if run_once else len(pids) == 2 and process.pid not in pids


@pytest.mark.thorough
def test_a_server_that_cannot_start_in_a_worker_is_named_with_its_last_lines(tmp_path, endpoint, unused_tcp_port):
    on_import = "if 'worker-1' in sys.argv: raise RuntimeError('not in here')"
    runner = make_environment(tmp_path, endpoint, unused_tcp_port, on_import)
    done = runner.run("-i", str(write_tasks(tmp_path / "tasks.jsonl", 4)), "--workers", "2")
    assert done.returncode == 1
    assert "server 'whoami' could not be loaded" in done.stderr
    assert "not in here" in done.stderr
    assert not runner.output.exists()


@pytest.mark.parametrize("flags", [["--workers", "0"], ["--workers", "many"], ["--workers", "2", "--no-serve"]])
def test_a_number_of_workers_that_makes_no_sense_is_refused(runner, flags):
    done = runner.run("-i", "tasks.jsonl", *flags)
    assert done.returncode != 0
    assert "num_rollout_workers" in done.stderr or "workers host their own servers" in done.stderr
    assert "Traceback" not in done.stderr
