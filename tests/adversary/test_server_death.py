# SPDX-License-Identifier: Apache-2.0
"""Server processes that die in the middle of a run: it is said at once, and nothing is lost by it."""

import subprocess

import psutil
import pytest

from tests.support import warm_start
from tests.support.eval_runs import Endpoint, fake_endpoint, planned
from tests.support.small_servers import free_port, until
from tests.support.verifier_runs import VerifierRunner

pytestmark = pytest.mark.slow

TASKS = 24
# The tenth task to be verified kills the process that verifies it, and never again.
DIE_ONCE = """
if body.number == 10 and not (HERE / "died").exists():
    (HERE / "died").touch()
    print("these are my last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def endpoint():
    with fake_endpoint() as made:
        yield made


def require_nothing_lost(runner: VerifierRunner) -> None:
    """What was not scored is not played, whatever the dead server has made of it."""
    scored = len(runner.keys())
    assert scored < TASKS
    assert runner.counts == {"requested": TASKS, "scored": scored, "failed": 0, "not_played": TASKS - scored} | {
        "by_kind": {}
    }
    assert {row["_ng_failure"]["kind"] for row in runner.rows("failures")} <= {"cancelled"}


@pytest.mark.fault(
    place="Server process",
    fault="It is killed while rollouts are played",
    outcome="The run stops, names server, signal and last lines; the rest stays not run, and `--resume` runs it.",
)
def test_the_death_of_a_server_process_stops_the_run_and_costs_no_attempt(tmp_path, endpoint):
    runner = VerifierRunner(tmp_path, endpoint, free_port(), DIE_ONCE, placement="process")
    arguments = ["-i", runner.write_tasks(TASKS), "--concurrency", "4"]
    died = runner.run(*arguments)
    assert died.returncode == 1, died.stderr
    assert "Error: server 'own' was killed by SIGKILL.\nits last lines:\n  these are my last words\n" in died.stderr
    assert "hint: the last lines of the server are above; run the same command again with `--resume`" in died.stderr
    assert "Traceback" not in died.stderr
    require_nothing_lost(runner)
    resumed = runner.run(*arguments, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert sorted(runner.keys()) == planned(TASKS)


@pytest.mark.thorough
@pytest.mark.fault(
    place="Server process",
    fault="One of its workers is killed while rollouts are played",
    outcome="The run stops and names server, worker and signal; the rest stays not run.",
)
def test_the_death_of_a_worker_stops_the_run_and_costs_no_attempt(tmp_path, endpoint):
    runner = VerifierRunner(tmp_path, endpoint, free_port(), DIE_ONCE, num_workers=2)
    died = runner.run("-i", runner.write_tasks(TASKS), "--concurrency", "4")
    assert died.returncode == 1, died.stderr
    assert "Error: server 'own' exited with code 1.\nits last lines:\n" in died.stderr
    assert ") was killed by SIGKILL. The other workers are stopped" in died.stderr
    require_nothing_lost(runner)


@pytest.mark.thorough
@pytest.mark.fault(
    place="Model server",
    fault="Its process is killed while rollouts are played",
    outcome="The run stops and names it; the rest stays not run.",
)
def test_the_death_of_the_model_server_stops_the_run_and_costs_no_attempt(tmp_path, endpoint):
    runner = VerifierRunner(tmp_path, endpoint, free_port(), "await asyncio.sleep(0.1)")
    runner.flags.append("++policy_model.responses_api_models.openai_model.placement=process")
    process = runner.start("-i", runner.write_tasks(TASKS), "--concurrency", "2", stderr=subprocess.PIPE)
    until(runner.keys, "a rollout is scored")
    (model,) = psutil.Process(process.pid).children()
    model.kill()
    with process.stderr:
        errors = process.stderr.read()
    assert process.wait(300) == 1, errors
    assert "Error: server 'policy_model' was killed by SIGKILL." in errors
    require_nothing_lost(runner)


@pytest.mark.thorough
@pytest.mark.fault(
    place="Server process",
    fault="It is killed while `gym eval reverify` scores",
    outcome="It stops and names server and signal; `--resume` scores the rest.",
)
def test_the_death_of_a_verifier_stops_a_reverification(tmp_path, endpoint: Endpoint):
    runner = VerifierRunner(tmp_path, endpoint, free_port(), DIE_ONCE, placement="inline")
    (runner.server / "died").touch()
    assert runner.run("-i", runner.write_tasks(TASKS)).returncode == 0
    (runner.server / "died").unlink()
    runner.output = tmp_path / "again.jsonl"
    command = ["eval", "reverify", *runner.flags, "--rollouts", "r.jsonl", "-o", "again.jsonl", "--concurrency", "4"]
    command.append("++own.resources_servers.own.placement=process")
    died = warm_start.run(command, cwd=tmp_path, timeout=300)
    assert died.returncode == 1, died.stderr
    assert "Error: server 'own' was killed by SIGKILL." in died.stderr
    require_nothing_lost(runner)
    resumed = warm_start.run([*command, "--resume"], cwd=tmp_path, timeout=300)
    assert resumed.returncode == 0, resumed.stderr
    assert sorted(runner.keys()) == planned(TASKS)
