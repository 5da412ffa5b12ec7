# SPDX-License-Identifier: Apache-2.0
"""pass@k, pass@1[avg-of-k], majority@k and their intervals."""

import pytest
from hypothesis import given, settings
from hypothesis.strategies import booleans, lists, sampled_from, tuples

from nemo_gym._metrics.pass_majority import pass_majority
from nemo_gym._results.curves import curve_metrics

RUNS = lists(tuples(sampled_from([0.0, 0.5, 1.0]), sampled_from([None, "x", "y"])), min_size=1, max_size=5)


@given(lists(RUNS, min_size=1, max_size=6), booleans())
@settings(max_examples=100, deadline=None)
def test_values_are_those_that_a_server_would_compute(tasks, with_answers):
    rewards = [[reward for reward, _ in runs] for runs in tasks]
    answers = [[answer for _, answer in runs] for runs in tasks] if with_answers else None
    ours = curve_metrics(rewards, answers, binary=False).metrics
    rollouts = [[{"reward": reward, "answer": answer} for reward, answer in runs] for runs in tasks]
    theirs = pass_majority(rollouts, answer_key="answer" if with_answers else None).metrics
    assert ours.keys() == theirs.keys()
    assert ours.pop("per_sample_aggregate").keys() == theirs.pop("per_sample_aggregate").keys()
    assert ours == pytest.approx(theirs, abs=1e-9)


def test_pass_at_k_is_interval_of_the_tasks():
    # pass@2 of one right in two is 1, of none is 0: mean 50 %, standard error 100 * sqrt(1/3 / 4).
    intervals = curve_metrics([[1, 0], [0, 1], [0, 0], [0, 0]], binary=True).intervals
    assert intervals["pass@2/accuracy"].estimate == 50.0
    assert intervals["pass@2/accuracy"].stderr == pytest.approx(28.8675, abs=1e-4)
    assert intervals["pass@1/accuracy"].estimate == 25.0
    assert intervals["pass@1/accuracy"].stderr == pytest.approx(14.4338, abs=1e-4)


def test_a_task_takes_no_part_where_it_has_too_few_rollouts():
    intervals = curve_metrics([[1, 1], [0]], binary=True).intervals
    assert [intervals[f"pass@{k}/accuracy"].n_tasks for k in (1, 2)] == [2, 1]


def test_the_majority_needs_answers():
    assert not any(name.startswith("majority") for name in curve_metrics([[1, 0]], binary=True).metrics)
    metrics = curve_metrics([[1, 1, 0]], [["x", "x", "y"]], binary=True).metrics
    assert metrics["majority@3/accuracy"] == 100.0
    assert metrics["pass@1[avg-of-3]/no_answer"] == 0.0
