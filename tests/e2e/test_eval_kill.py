# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` killed at any moment, with no chance to clean up: resumed, it plays exactly what is missing."""

import random
import subprocess
import time

import pytest

from tests.support.eval_runs import CALLS_PER_ROLLOUT, Runner, fake_endpoint, planned, write_tasks

TASKS, REPEATS = 60, 10


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_a_run_that_is_killed_again_and_again_loses_and_repeats_nothing(tmp_path, unused_tcp_port, kills):
    moments = random.Random(7)
    tasks = write_tasks(tmp_path / "tasks.jsonl", TASKS)
    arguments = ["-i", str(tasks), "--num-repeats", str(REPEATS), "--concurrency", "8", "--resume"]
    with fake_endpoint() as endpoint:
        endpoint.set(latency_ms=100)
        runner = Runner(tmp_path, endpoint, unused_tcp_port)
        for number in range(kills):
            before = recorded(runner)
            # Some are killed while they start, most while they record.
            kill(runner, arguments, moments.uniform(0.0, 0.4), while_starting=number % 5 == 0)
            assert recorded(runner).startswith(before), "what is recorded stays as it is"
        left = TASKS * REPEATS - len(runner.keys())
        assert 0 < left < TASKS * REPEATS
        endpoint.set(latency_ms=0)
        endpoint.calls(then_forget=True)
        done = runner.run(*arguments)
        assert done.returncode == 0, done.stderr
        assert sorted(runner.keys()) == planned(TASKS, REPEATS)
        assert endpoint.calls() == CALLS_PER_ROLLOUT * left, "what was scored is not played again"


def kill(runner: Runner, arguments: list[str], after_s: float, *, while_starting: bool) -> None:
    """Start a run and kill it `after_s` seconds after it began, or after it began to record."""
    size, errors = len(recorded(runner)), runner.folder / "errors.txt"
    with errors.open("wb") as file:
        process = runner.start(*arguments, stdout=subprocess.DEVNULL, stderr=file)
    try:
        while not while_starting and len(recorded(runner)) == size:
            assert process.poll() is None, f"it ended before it was killed:\n{errors.read_text()}"
            time.sleep(0.01)
        time.sleep(after_s)
        assert process.poll() is None, f"it ended before it was killed:\n{errors.read_text()}"
    finally:
        process.kill()
        process.wait()


def recorded(runner: Runner) -> bytes:
    return runner.output.read_bytes() if runner.output.exists() else b""
