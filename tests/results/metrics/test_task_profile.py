# SPDX-License-Identifier: Apache-2.0
"""Reward profiles of runs."""

import pytest

from nemo_gym._results.metrics.task_profile import drop_histograms, make_entry, profile, summarize_rewards
from tests.support.measured import make_rollout


def rows(tasks, repeats, agent="a"):
    return [
        {"_ng_task_index": t, "_ng_rollout_index": r, "agent_ref": {"name": agent}, "question": f"q{t}"}
        for t in range(tasks)
        for r in range(repeats)
    ]


def results(rewards):
    return [
        {"_ng_task_index": t, "_ng_rollout_index": r, "reward": reward}
        for t, runs in enumerate(rewards)
        for r, reward in enumerate(runs)
    ]


def test_a_task_is_described_by_its_rollouts():
    entry = profile(rows(1, 2), results([[1.0, 0.0]])).tasks[0]
    assert drop_histograms(entry) == {
        "_ng_task_index": 0,
        "mean/reward": 0.5,
        "max/reward": 1.0,
        "min/reward": 0.0,
        "median/reward": 0.5,
        "std/reward": pytest.approx(0.7071067811865476),
        "sample": {"agent_ref": {"name": "a"}, "question": "q0"},
        "num_rollouts": 2,
        "expected_num_rollouts": 2,
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
        "rollout_infos": [
            {"rollout_id": "0:0", "_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0},
            {"rollout_id": "0:1", "_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 0.0},
        ],
    }
    assert entry["histogram/reward"]["counts"] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_results_are_matched_by_index_and_not_by_order():
    shuffled = list(reversed(results([[1.0, 1.0], [0.0, 0.0]])))
    assert [entry["mean/reward"] for entry in profile(rows(2, 2), shuffled).tasks] == [1.0, 0.0]


def test_every_agent_has_an_entry():
    planned = [*rows(1, 1, agent="b"), {"_ng_task_index": 1, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}}]
    agents = profile(planned, results([[1.0], [0.0]])).agents
    assert [(entry["agent_ref"], entry["mean/reward"]) for entry in agents] == [
        ({"name": "a"}, 0.0),
        ({"name": "b"}, 1.0),
    ]


def test_missing_rollouts_are_an_error_that_names_them():
    with pytest.raises(ValueError, match=r"1 of 2 rollouts were scored; 1 are missing: 0:1"):
        profile(rows(1, 2), results([[1.0]]))


def test_missing_rollouts_are_counted_when_allowed():
    entries = profile(rows(2, 2), results([[1.0]]), allow_partial=True).tasks
    assert [entry["missing_num_rollouts"] for entry in entries] == [1, 2]
    assert [entry["reward_profile_completion_pct"] for entry in entries] == [50.0, 0.0]
    assert entries[1]["rollout_infos"] == []
    assert "mean/reward" not in entries[1]


@pytest.mark.parametrize("allow_partial", [True, False])
def test_rollouts_that_nobody_planned_are_an_error(allow_partial):
    with pytest.raises(ValueError, match=r"have no input row: 0:1"):
        profile(rows(1, 1), results([[1.0, 1.0]]), allow_partial=allow_partial)


@pytest.mark.parametrize("allow_partial", [True, False])
def test_duplicates_are_an_error_on_both_sides(allow_partial):
    with pytest.raises(ValueError, match="among the results: 0:0"):
        profile(rows(1, 1), results([[1.0]]) * 2, allow_partial=allow_partial)
    with pytest.raises(ValueError, match="among the input rows: 0:0"):
        profile(rows(1, 1) * 2, results([[1.0]]), allow_partial=allow_partial)


def test_a_threshold_adds_the_pass_rate():
    entry = profile(rows(1, 4), results([[1.0, 0.5, 0.4, 0.0]]), pass_threshold=0.5).tasks[0]
    assert (entry["pass_rate"], entry["pass_rate_total"], entry["pass_rate_passed"]) == (0.5, 4, 2)


def test_rewards_are_summarized_with_the_deviation_of_the_population():
    assert summarize_rewards([1.0, 0.0]) == {
        "avg_reward": 0.5,
        "std_reward": 0.5,
        "min_reward": 0.0,
        "max_reward": 1.0,
        "total_samples": 2,
    }


def test_rewards_have_a_pass_rate_only_with_a_threshold():
    summary = summarize_rewards([1.0, 0.0], pass_threshold=1.0)
    assert {name: summary[name] for name in summary if name.startswith("pass_")} == {
        "pass_rate": 0.5,
        "pass_rate_total": 2,
        "pass_rate_passed": 1,
        "pass_threshold": 1.0,
    }


def test_a_task_without_rollouts_has_counts_only():
    entry = make_entry(3, [], 2, {})
    assert entry == {
        "_ng_task_index": 3,
        "sample": {},
        "num_rollouts": 0,
        "expected_num_rollouts": 2,
        "missing_num_rollouts": 2,
        "reward_profile_completion_pct": 0.0,
        "rollout_infos": [],
    }


def test_rollouts_of_different_fields_are_described_by_those_that_have_them():
    rollouts = [make_rollout((0, 0), {"reward": 1.0}), make_rollout((0, 1), {"reward": 0.0, "turns": 3})]
    entry = make_entry(0, rollouts, 2, {})
    assert (entry["mean/reward"], entry["mean/turns"]) == (0.5, 3.0)
    assert entry["rollout_infos"][1] == {
        "rollout_id": "0:1",
        "_ng_task_index": 0,
        "_ng_rollout_index": 1,
        "reward": 0.0,
        "turns": 3,
    }
