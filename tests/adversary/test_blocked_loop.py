# SPDX-License-Identifier: Apache-2.0
"""A verifier that blocks the event loop of the run: it is named, its rollout ends in time, and signals are heard."""

import re
import signal
import subprocess

import pytest

from tests.support.eval_runs import fake_endpoint
from tests.support.small_servers import free_port
from tests.support.verifier_runs import VerifierRunner

pytestmark = pytest.mark.slow

TASKS = 6
SLEEP, COMPUTE, MATCH = "time.sleep(1e6)", "while True: pass", "re.match('(a+)+$', 'a' * 40 + 'b')"
BLOCK = f"""
import re
if body.number == 1:
    try:
        {SLEEP}
    except Exception:
        return BaseVerifyResponse(**body.model_dump(), reward=0.0)
if body.number == 2:
    {COMPUTE}
if body.number == 3:
    {MATCH}
"""
STUBBORN = """
while body.number == 1:
    try:
        time.sleep(1e6)
    except BaseException:
        pass
"""


@pytest.fixture(scope="module")
def endpoint():
    with fake_endpoint() as made:
        yield made


@pytest.fixture
def make_runner(tmp_path, endpoint):
    return lambda verify: VerifierRunner(tmp_path, endpoint, free_port(), f"print('verifying', body.number)\n{verify}")


def start_and_block(runner: VerifierRunner, *arguments: str):
    """Start a run and return it once its verifier is at the task that blocks."""
    process = runner.start("-i", runner.write_tasks(TASKS), "--concurrency", "1", *arguments, stderr=subprocess.PIPE)
    for line in process.stderr:
        if "verifying 1" in line:
            return process
    raise AssertionError(f"it ended with code {process.wait()}")


def read_until(process, text: str) -> str:
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"it ended with code {process.wait()} and without saying {text!r}")


@pytest.mark.fault(
    place="Inline server",
    fault="A handler sleeps, computes or matches a regular expression for ever",
    outcome="`--timeout` ends it: a `timeout` failure names server and line, never a score; the others are played.",
)
def test_a_verifier_that_blocks_the_loop_is_interrupted_at_the_timeout(make_runner):
    runner = make_runner(BLOCK)
    done = runner.run("-i", runner.write_tasks(TASKS), "--concurrency", "1", "--timeout", "1.5")
    assert done.returncode == 1, done.stderr
    assert sorted(runner.keys()) == [(0, 0), (4, 0), (5, 0)]
    failures = {row["_ng_task_index"]: row["_ng_failure"] for row in runner.rows("failures")}
    assert {task: failure["kind"] for task, failure in failures.items()} == dict.fromkeys((1, 2, 3), "timeout")
    for task, code in ((1, SLEEP), (2, COMPUTE), (3, MATCH)):
        named = rf"server 'own' blocked the event loop .* in verify, .*own/app.py:\d+: {re.escape(code)}"
        assert re.search(named, failures[task]["message"])
    assert runner.counts["failed"] == 3


@pytest.mark.fault(
    place="Inline server",
    fault="A handler blocks the event loop, and SIGTERM comes",
    outcome="The handler is interrupted and the run ends with 130; what has no result stays not run.",
)
def test_sigterm_ends_a_run_whose_loop_is_blocked(make_runner):
    runner = make_runner(BLOCK)
    process = start_and_block(runner)
    process.send_signal(signal.SIGTERM)
    with process.stderr:
        read_until(process, f"{TASKS - 1} of {TASKS} rollouts did not run.")
        assert process.wait(300) == 130
    assert runner.keys() == [(0, 0)]
    assert (runner.counts["scored"], runner.counts["failed"], runner.counts["not_played"]) == (1, 0, TASKS - 1)


@pytest.mark.fault(
    place="Inline server",
    fault="A handler blocks the event loop and catches every interruption",
    outcome="Ctrl-C names the server and the line, and the third one ends the process with 130, the record intact.",
)
def test_the_third_ctrl_c_ends_a_run_that_nothing_else_ends(make_runner):
    runner = make_runner(STUBBORN)
    process = start_and_block(runner)
    with process.stderr:
        process.send_signal(signal.SIGINT)
        assert "own/app.py:" in read_until(process, "server 'own' blocks the event loop")
        process.send_signal(signal.SIGINT)
        read_until(process, "canceling running rollouts")
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
    assert runner.keys() == [(0, 0)]


@pytest.mark.thorough
@pytest.mark.fault(
    place="Inline server",
    fault="A handler catches every interruption, and its rollout has a `--timeout`",
    outcome="The run ends by itself with exit code 1, names the server and the line, and `--resume` can go on.",
)
def test_a_run_whose_loop_cannot_be_freed_ends_by_itself(make_runner):
    runner = make_runner(STUBBORN)
    process = start_and_block(runner, "--timeout", "1")
    with process.stderr:
        assert "in verify, " in read_until(process, "Error: the run ends as it stands: server 'own' blocks")
        assert "`--resume`" in read_until(process, "hint:")
        assert process.wait(300) == 1
    assert runner.keys() == [(0, 0)]
