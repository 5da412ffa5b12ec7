# SPDX-License-Identifier: Apache-2.0
"""The programs of `examples/` do what they say, run as they say, in a folder of the reader's own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym.testing import reply
from tests.support.eval_runs import fake_endpoint

pytestmark = pytest.mark.thorough

EXAMPLES = PARENT_DIR / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


def run_example(name: str, folder: Path, *arguments: str) -> str:
    """Run a program of the examples in `folder`, and return what it printed."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_a_model_is_evaluated_from_python(tmp_path, unused_tcp_port):
    with fake_endpoint() as endpoint:
        endpoint.set(answer="I do not know.")
        policy = f"policy_base_url: {endpoint.url}/v1\npolicy_api_key: sk-hidden\npolicy_model_name: fake\n"
        (tmp_path / "env.yaml").write_text(f"{policy}head_server: {{port: {unused_tcp_port}}}\n")
        said = run_example("evaluate.py", tmp_path, "openai_model")
    assert "task 4, rollout 1: reward 0.0" in said
    assert "mean reward of 10 rollouts: 0.00" in said
    assert (tmp_path / "results/evaluate/rollouts_aggregate_metrics.json").exists()


def test_an_environment_in_one_file_is_played(tmp_path):
    said = run_example("own_environment.py", tmp_path)
    assert 'function_call_output {"result":"larger"}' in said
    assert 'function_call_output {"result":"found"}' in said
    assert "reward: 0.75" in said


def test_an_agent_takes_the_majority_of_three_replies(tmp_path):
    assert run_example("own_agent.py", tmp_path) == "answer: Oslo\nreward: 1.0\n"


def test_metrics_of_an_environment_stand_beside_the_usual_ones(tmp_path):
    said = run_example("custom_metrics.py", tmp_path)
    assert said == "words_per_answer: 4\npass@2/right: 100\npass@2/short: 50\n"


def test_rollouts_become_a_table(tmp_path):
    rewards = {0: [1.0, 0.0], 1: [0.0, 0.0]}
    rows = [
        {"_ng_task_index": task, "reward": reward, "response": json.loads(reply("Oslo").model_dump_json())}
        for task, of_task in rewards.items()
        for reward in of_task
    ]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = run_example("analyse_rollouts.py", tmp_path, "rollouts.jsonl")
    assert "4 rollouts of 2 tasks, mean reward 0.250" in said
    assert "1 tasks are solved by some rollouts and not by others" in said


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_example_says_how_to_run_it_and_uses_the_public_api_only(program):
    text = program.read_text()
    assert f"    python examples/{program.name}" in text
    assert not re.search(r"nemo_gym\._|nemo_gym import _", text)
    assert f"({program.name})" in (EXAMPLES / "README.md").read_text()
