# SPDX-License-Identifier: Apache-2.0
"""Aggregation of verify responses."""

import random

import pytest

from nemo_gym._results.metrics.grouped_metrics import Aggregate, aggregate, compute_confidence
from tests.support.measured import make_rollout


def response(task, rollout, reward, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward, **fields}


def test_no_responses_give_an_empty_result():
    assert aggregate([], compute_metrics=lambda tasks: {"called": 1}) == Aggregate([], {}, {})


def test_all_rollouts_together_and_every_task_apart():
    found = aggregate([response(0, 0, 1.0), response(0, 1, 0.0), response(7, 0, 1.0)])
    assert found.agent["mean/reward"] == pytest.approx(2 / 3)
    assert found.agent["max/reward"] == 1.0
    assert [(entry["_ng_task_index"], entry["mean/reward"]) for entry in found.tasks] == [(0, 0.5), (7, 1.0)]
    assert found.key == {"mean/reward": pytest.approx(2 / 3)}


def test_a_masked_reward_is_no_zero():
    masked = response(1, 0, 0.0, mask_sample=True, failure_kind="judge_failed")
    seen = []
    found = aggregate([response(0, 0, 1.0, mask_sample=False), masked], lambda tasks: seen.extend(tasks) or {})
    assert found.agent["mean/reward"] == 1.0
    assert [len(task) for task in seen] == [1]
    assert aggregate([masked]) == Aggregate([], {}, {})


def test_whether_a_reward_is_masked_is_no_metric():
    found = aggregate([response(0, 0, 1.0, mask_sample=False)])
    assert not [name for name in found.agent if "mask_sample" in name]


@pytest.mark.parametrize(("fields", "name"), [({"agent_ref": {"name": "mine"}}, "mine"), ({}, "agent")])
def test_the_sample_of_a_task_names_its_agent(fields, name):
    (entry,) = aggregate([response(0, 0, 1.0, **fields)]).tasks
    assert entry["sample"] == {"agent_ref": {"name": name}}


def test_histograms_stay_out():
    found = aggregate([response(0, 0, 1.0)])
    assert not [name for name in (*found.agent, *found.tasks[0]) if name.startswith("histogram/")]


def test_a_gap_in_the_indices_is_a_missing_rollout():
    entry = aggregate([response(0, 0, 1.0), response(0, 2, 1.0)]).tasks[0]
    assert (entry["num_rollouts"], entry["expected_num_rollouts"], entry["missing_num_rollouts"]) == (2, 3, 1)


def test_own_metrics_see_tasks_and_rollouts_in_order_whatever_came_first():
    responses = [response(task, rollout, 0.0) for task in range(3) for rollout in range(2)]
    random.Random(1).shuffle(responses)
    seen = []
    aggregate(responses, compute_metrics=lambda tasks: seen.extend(tasks) or {})
    order = [[(one["_ng_task_index"], one["_ng_rollout_index"]) for one in task] for task in seen]
    assert order == [[(0, 0), (0, 1)], [(1, 0), (1, 1)], [(2, 0), (2, 1)]]


def test_own_metrics_join_and_override_and_key_metrics_see_the_result():
    found = aggregate(
        [response(0, 0, 1.0)],
        compute_metrics=lambda tasks: {"mean/reward": 42.0, "own": 1},
        key_metrics=lambda metrics: {"key": metrics["own"] + metrics["mean/reward"]},
    )
    assert found.agent["mean/reward"] == 42.0
    assert found.key == {"key": 43.0}


@pytest.mark.parametrize(
    "per_task", [[{"f1": 1}, {"f1": 2}], {0: {"f1": 1}, 4: {"f1": 2}}, {"0": {"f1": 1}, "4": {"f1": 2}}]
)
def test_metrics_per_task_go_into_the_entries_of_the_tasks(per_task):
    found = aggregate(
        [response(0, 0, 1.0), response(4, 0, 1.0)], compute_metrics=lambda tasks: {"per_task_metrics": per_task}
    )
    assert [entry["f1"] for entry in found.tasks] == [1, 2]
    assert "per_task_metrics" not in found.agent


def test_a_wrong_number_of_metrics_per_task_is_an_error():
    with pytest.raises(ValueError, match="2 entries in 'per_task_metrics' for 1 tasks"):
        aggregate([response(0, 0, 1.0)], compute_metrics=lambda tasks: {"per_task_metrics": [{}, {}]})


def test_duplicates_are_an_error():
    with pytest.raises(ValueError, match="0:0"):
        aggregate([{"reward": 1.0}, {"reward": 0.0}])


def intervals_of(rewards):
    rollouts = [make_rollout((t, r), {"reward": one}) for t, task in enumerate(rewards) for r, one in enumerate(task)]
    _, confidence = compute_confidence(rollouts, None, with_answers=False)
    return {name: interval for name, (interval, _) in confidence.items()}


def test_pass_at_k_is_interval_of_the_tasks():
    # pass@2 of one right in two is 1, of none is 0: mean 50 %, standard error 100 * sqrt(1/3 / 4).
    intervals = intervals_of([[1, 0], [0, 1], [0, 0], [0, 0]])
    assert intervals["pass@2/accuracy"].estimate == 50.0
    assert intervals["pass@2/accuracy"].stderr == pytest.approx(28.8675, abs=1e-4)
    assert intervals["pass@1/accuracy"].estimate == 25.0
    assert intervals["pass@1/accuracy"].stderr == pytest.approx(14.4338, abs=1e-4)


def test_a_task_takes_no_part_where_it_has_too_few_rollouts():
    intervals = intervals_of([[1, 1], [0]])
    assert [intervals[f"pass@{k}/accuracy"].n_tasks for k in (1, 2)] == [2, 1]
