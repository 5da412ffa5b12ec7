# SPDX-License-Identifier: Apache-2.0
"""Rewards at the edge of what a number can hold: every report is made, and its JSON is valid."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nemo_gym._results.metrics.grouped_metrics import compute_headline
from nemo_gym._results.metrics.intervals import compute_interval_over_tasks
from nemo_gym._results.metrics.pass_at_k import compute_pass_majority, compute_pass_metrics, score_rewards
from nemo_gym._results.run_summary import RunningMean
from nemo_gym.reward_profile import compute_mean_rewards_by
from tests.cli.conftest import gym, ports_are_given_back  # noqa: F401  fixtures

HUGE = [[1e308, 1e308], [1e308, -1e308], [-1.7e308, 1.7e308], [0.0, 1.0]]
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e160, 1e308, -1e308, 1.7e308, -1.7e308, 5e-324])


def write_run(path: Path, rewards: list[list[float]]) -> Path:
    """Write the rollouts of a run, and its plan beside it."""
    plan = path.with_name(f"{path.stem}_materialized_inputs.jsonl")
    with path.open("w") as output, plan.open("w") as inputs:
        for task, of_task in enumerate(rewards):
            for rollout, reward in enumerate(of_task):
                row = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "a"}}
                row["responses_create_params"] = {"input": f"question {task}"}
                inputs.write(json.dumps(row) + "\n")
                output.write(json.dumps({**row, "reward": reward, "points": reward, "response": {}}) + "\n")
    return path


def parse_strictly(text: str) -> Any:
    """Parse JSON as its standard has it, without NaN and Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.fault(
    place="Metrics",
    fault="Rewards of ±1e308, whose sums and squares are larger than a number can be",
    outcome="Every command reports; what no number can hold is null, and the JSON is valid.",
)
def test_every_report_survives_huge_rewards(gym, tmp_path):  # noqa: F811
    one, other = write_run(tmp_path / "one.jsonl", HUGE), write_run(tmp_path / "other.jsonl", HUGE[::-1])
    commands = [
        ("eval", "aggregate", "--input-glob", str(one), "--output", str(tmp_path / "merged.jsonl")),
        ("eval", "profile", "--rollouts", str(one)),
        ("eval", "compare", str(one), str(other)),
    ]
    for command in commands:
        plain, as_json = gym(*command), gym(*command, "--json")
        assert (plain.code, as_json.code) == (0, 0), (plain.err, as_json.err)
        parse_strictly(as_json.out)
    (entry,) = parse_strictly((tmp_path / "merged_aggregate_metrics.json").read_text())
    assert entry["agent_metrics"]["mean/reward"] == pytest.approx(2.5e307)
    assert entry["confidence"]["pass@1/reward"]["estimate"] == pytest.approx(entry["agent_metrics"]["pass@1/reward"])


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=4), min_size=1, max_size=4))
def test_no_metric_overflows(rewards):
    running = RunningMean()
    for task, of_task in enumerate(rewards):
        for reward in of_task:
            running.add(task, reward)
            running.interval()
    compute_pass_metrics(score_rewards(rewards, [["a", "b", "a", None][: len(of_task)] for of_task in rewards]))
    compute_headline(rewards, binary=False)
    interval = compute_interval_over_tasks(rewards, binary=False)
    every = [reward for of_task in rewards for reward in of_task]
    assert min(every) <= interval.estimate * (1 + 1e-9) or min(every) <= interval.estimate * (1 - 1e-9)
    assert (interval.low is None) == (interval.high is None)
    rows = [[{"reward": reward, "answer": "a", "kind": "k"} for reward in of_task] for of_task in rewards]
    compute_pass_majority(rows, answer_key="answer")
    compute_mean_rewards_by(rows, "kind")
