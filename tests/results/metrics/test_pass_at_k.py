# SPDX-License-Identifier: Apache-2.0
"""pass@k and majority@k over tasks."""

import logging
import math
import statistics
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._results.metrics.pass_at_k import (
    compute_average_curve,
    compute_majority_curve,
    compute_pass_curve,
    compute_pass_majority,
    compute_pass_metrics,
    compute_spread_curve,
    score_rewards,
    select_highest_k,
    select_means,
)
from nemo_gym.reward_profile import add_avg_sample_std_dev, compute_mean_rewards_by, compute_subset_metrics


def task(*rewards, **fields):
    return [{"reward": reward, **fields} for reward in rewards]


def test_metrics_of_two_tasks_equal_those_computed_by_hand():
    metrics = compute_pass_majority([task(1.0, 0.0), task(1.0, 1.0)]).metrics
    assert metrics == {
        "pass@1/accuracy": 75.0,
        "pass@2/accuracy": 100.0,
        "pass@1[avg-of-1]/accuracy": 100.0,
        "pass@1[avg-of-2]/accuracy": 75.0,
        "per_sample_aggregate": {"accuracy": [100.0, 50.0]},
        # sample deviation of 100 and 50; divided by the root of 2
        "pass@1[avg-of-2]/accuracy/std_dev_across_runs": pytest.approx(35.35533905932738),
        "pass@1[avg-of-2]/accuracy/std_err_across_runs": pytest.approx(25.0),
    }


def test_majority_and_no_answer_by_hand():
    tasks = [
        [{"reward": 1.0, "answer": "4"}, {"reward": 0.0, "answer": "5"}, {"reward": 1.0, "answer": "4"}],
        [{"reward": 0.0, "answer": None}, {"reward": 0.0, "answer": None}, {"reward": 1.0, "answer": "7"}],
    ]
    result = compute_pass_majority(tasks, answer_key="answer")
    assert result.score_names == ["accuracy", "no_answer"]
    assert result.max_k == 3
    assert [result.metrics[f"majority@{k}/accuracy"] for k in (1, 2, 3)] == [50.0, 25.0, 100.0]
    assert result.metrics["pass@1[avg-of-3]/no_answer"] == pytest.approx(100 / 3)
    assert result.scores[1][0] == {"accuracy": 0.0, "no_answer": 1.0}


def test_without_an_answer_key_there_is_no_majority():
    assert not [
        name for name in compute_pass_majority([task(1, 0)]).metrics if "majority" in name or "no_answer" in name
    ]


def test_tasks_with_fewer_than_k_rollouts_are_left_out_of_k():
    metrics = compute_pass_majority([task(1.0, 1.0), task(0.0)]).metrics
    assert metrics["pass@1/accuracy"] == 50.0
    assert metrics["pass@2/accuracy"] == 100.0
    assert metrics["pass@1[avg-of-2]/accuracy"] == 100.0
    assert metrics["per_sample_aggregate"]["accuracy"] == [50.0, 100.0]


def test_a_score_function_gives_the_names():
    result = compute_pass_majority([task(0.5, 1.0)], score_fn=lambda rollout: {"f1": rollout["reward"], "solved": True})
    assert result.score_names == ["f1", "solved"]
    assert result.metrics["pass@2/f1"] == 100.0
    assert result.metrics["pass@1/f1"] == 50.0
    assert result.metrics["pass@1/solved"] == 100.0


def test_no_tasks_give_no_metrics():
    result = compute_pass_majority([])
    assert (result.metrics, result.scores, result.score_names, result.max_k) == ({}, [], [], 0)


def test_a_task_without_rollouts_changes_nothing():
    assert compute_pass_majority([[], task(1.0)]).metrics == compute_pass_majority([task(1.0)]).metrics


def test_nan_is_left_out_and_named_in_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        metrics = compute_pass_majority([task(1.0, math.nan), task(0.0, 0.0)]).metrics
    assert metrics["pass@1/accuracy"] == 50.0
    assert "'accuracy' (1)" in caplog.text


def test_a_missing_score_is_left_out():
    assert compute_pass_majority([[{"reward": 1.0}, {}]]).metrics["pass@1/accuracy"] == 100.0


def test_the_spread_within_tasks_is_averaged_over_tasks():
    scores = [[{"accuracy": 1.0}, {"accuracy": 0.0}], [{"accuracy": 1.0}, {"accuracy": 1.0}]]
    assert add_avg_sample_std_dev({}, scores, ["accuracy"], 2) == {
        "pass@1[avg-of-2]/accuracy/avg_sample_std_dev": pytest.approx(100 * math.sqrt(0.5) / 2)
    }


def test_subsets_are_computed_apart():
    tasks = [task(1.0, 1.0, level="easy"), task(0.0, 0.0, level="hard"), task(1.0, 0.0)]
    metrics = compute_subset_metrics(tasks, "level")
    assert metrics["easy/pass@1/accuracy"] == 100.0
    assert metrics["hard/pass@2/accuracy"] == 0.0
    assert {name.split("/")[0] for name in metrics} == {"easy", "hard"}


def test_the_first_rollout_of_a_task_names_its_subset_and_subsets_keep_their_order():
    first_is_silent = [{"reward": 1.0}, {"reward": 1.0, "level": "easy"}]
    tasks = [task(1.0, level="hard"), [*task(1.0, level="easy"), *task(0.0, level="hard")], first_is_silent]
    tasks += [task(1.0, level=""), task(1.0, level=0), []]
    metrics = compute_subset_metrics(tasks, "level")
    assert list(dict.fromkeys(name.split("/")[0] for name in metrics)) == ["hard", "easy"]
    assert (metrics["hard/n_scored"], metrics["easy/n_scored"]) == (1, 2)


def test_the_metrics_of_a_subset_are_numbers_that_a_server_can_add_up():
    metrics = compute_subset_metrics([task(1.0, 0.0, level="easy")], "level")
    assert not any(name.endswith("per_sample_aggregate") for name in metrics)
    assert all(type(value) in (int, float) for value in metrics.values())


def test_every_subset_says_how_many_rollouts_and_tasks_it_has():
    metrics = compute_subset_metrics(
        [task(1.0, 1.0, level="easy"), task(0.0, level="easy"), task(1.0, level="hard")], "level"
    )
    assert {name: metrics[name] for name in metrics if "/n_" in name} == {
        "easy/n_scored": 3,
        "easy/n_tasks": 2,
        "hard/n_scored": 1,
        "hard/n_tasks": 1,
    }


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), min_size=1, max_size=6))
def test_all_values_are_percentages_and_pass_never_falls(rewards):
    metrics = compute_pass_majority([task(*runs) for runs in rewards]).metrics
    curve = [metrics[f"pass@{k}/accuracy"] for k in (1, 2, 3, 4)]
    assert all(0 <= value <= 100 for value in curve)
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(curve))
    assert metrics["pass@1/accuracy"] == pytest.approx(metrics["pass@1[avg-of-4]/accuracy"])


def test_the_mean_reward_of_a_category_says_how_many_rollouts_it_rests_on():
    tasks = [
        [{"level": "easy", "reward": 1.0}, {"level": "easy", "reward": 0.0}],
        [{"level": "easy", "reward": 1.0}],
        [{"level": "hard", "reward": 0.0}],
        [{"reward": 1.0}],
        [],
    ]
    assert compute_mean_rewards_by(tasks, "level") == {
        "mean/reward/easy": 0.75,
        "n_scored/mean/reward/easy": 3,
        "mean/reward/hard": 0.0,
        "n_scored/mean/reward/hard": 1,
    }


def test_the_majority_needs_answers():
    assert not any(name.startswith("majority") for name in compute_pass_metrics(score_rewards([[1, 0]])).metrics)
    metrics = compute_pass_metrics(score_rewards([[1, 1, 0]], [["x", "x", "y"]])).metrics
    assert metrics["majority@3/accuracy"] == 100.0
    assert metrics["pass@1[avg-of-3]/no_answer"] == 0.0


# --- picking key metrics ----------------------------------------------------------------------------------------------

METRICS = {
    "mean/reward": 0.5,
    "pass@2/accuracy": 60.0,
    "pass@10/accuracy": 80.0,
    "pass@10/no_answer": 5.0,
    "pass@1[avg-of-10]/accuracy": 55.0,
    "pass@1[avg-of-10]/accuracy/std_dev_across_runs": 2.0,
    "easy/pass@99/accuracy": 100.0,
}


def test_the_highest_k_is_taken_as_a_number():
    assert select_highest_k(METRICS, "pass@{k}") == {"pass@10/accuracy": 80.0, "pass@10/no_answer": 5.0}


def test_spreads_are_left_out_unless_named():
    assert select_highest_k(METRICS, "pass@1[avg-of-{k}]") == {"pass@1[avg-of-10]/accuracy": 55.0}
    named = select_highest_k(METRICS, "pass@1[avg-of-{k}]", score_names=["accuracy", "accuracy/std_dev_across_runs"])
    assert len(named) == 2


def test_scores_can_be_chosen_and_excluded():
    assert select_highest_k(METRICS, "pass@{k}", score_names=["no_answer"]) == {"pass@10/no_answer": 5.0}
    assert select_highest_k(METRICS, "pass@{k}", exclude_names=["no_answer"]) == {"pass@10/accuracy": 80.0}


def test_nothing_that_matches_gives_nothing():
    assert select_highest_k(METRICS, "majority@{k}") == {}


def test_a_pattern_without_k_is_refused():
    with pytest.raises(ValueError, match=r"hint: write it as in 'pass@\{k\}'"):
        select_highest_k(METRICS, "pass@1")


def test_means_are_the_means():
    assert select_means(METRICS) == {"mean/reward": 0.5}


# --- curves of one task: by hand, by brute force and by property ------------------------------------------------------


binary = st.lists(st.sampled_from([0, 1]), min_size=1, max_size=9)
fractions = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=9)


def test_pass_at_k_of_one_right_answer_in_four():
    # 1 - C(3,k)/C(4,k): 1 - 3/4, 1 - 3/6, 1 - 1/4, 1 - 0
    assert list(compute_pass_curve([0, 0, 1, 0])) == [0.25, 0.5, 0.75, 1.0]


def test_pass_at_k_of_fractions_is_the_best_of_the_first_k():
    assert compute_pass_curve([0.2, 0.5, 0.1]) == [0.2, 0.5, 0.5]


@settings(max_examples=40, deadline=None)
@given(binary)
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(scores):
    for k, value in enumerate(compute_pass_curve(scores), 1):
        subsets = list(combinations(scores, k))
        assert value == pytest.approx(sum(map(any, subsets)) / len(subsets))


@settings(max_examples=40, deadline=None)
@given(binary | fractions)
def test_pass_at_k_never_falls_as_k_grows(scores):
    curve = list(compute_pass_curve(scores))
    assert curve == sorted(curve)


@settings(max_examples=40, deadline=None)
@given(binary)
def test_pass_at_1_of_binary_scores_is_their_mean(scores):
    assert compute_pass_curve(scores)[0] == pytest.approx(statistics.fmean(scores))


@settings(max_examples=40, deadline=None)
@given(binary.flatmap(lambda scores: st.tuples(st.just(scores), st.permutations(scores))))
def test_the_order_of_binary_scores_does_not_matter_to_pass_at_k(pair):
    assert compute_pass_curve(pair[0]) == compute_pass_curve(pair[1])


def test_pass_at_k_of_many_runs_stays_exact():
    curve = compute_pass_curve([1] + [0] * 1999)
    assert curve[999] == 0.5
    assert curve[-1] == 1.0


@settings(max_examples=40, deadline=None)
@given(fractions)
def test_the_average_of_k_is_the_mean_of_the_first_k(scores):
    for k, value in enumerate(compute_average_curve(scores), 1):
        assert value == pytest.approx(statistics.fmean(scores[:k]))


def test_the_commonest_answer_gives_the_majority_score():
    assert compute_majority_curve(["4", "5", "4"], [1, 0, 1]) == [1.0, 0.5, 1.0]


def test_ties_of_the_majority_are_averaged():
    assert compute_majority_curve(["a", "b", "c"], [1, 0, 0])[-1] == pytest.approx(1 / 3)


def test_runs_without_an_answer_have_no_vote():
    assert compute_majority_curve([None, None, "4"], [0, 0, 1]) == [0.0, 0.0, 1.0]


def test_without_any_answer_the_majority_scores_zero():
    assert compute_majority_curve([None, None], [1, 1]) == [0.0, 0.0]


def test_the_same_answer_with_two_scores_is_two_candidates():
    assert compute_majority_curve(["4", "4", "4"], [1, 0, 1]) == [1.0, 0.5, 1.0]


def test_answers_that_are_lists_are_compared_by_content():
    assert compute_majority_curve([[[1, 2]], [[1, 2]], [[3]]], [1, 1, 0])[-1] == 1.0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from([0, 0.5, 1])), min_size=1, max_size=9)
)
def test_the_majority_curve_agrees_with_counting_anew_for_every_k(runs):
    answers, scores = [run[0] for run in runs], [run[1] for run in runs]
    for k, value in enumerate(compute_majority_curve(answers, scores), 1):
        pairs = [run for run in runs[:k] if run[0] is not None]
        leaders = [pair for pair in set(pairs) if pairs.count(pair) == max(map(pairs.count, pairs))] if pairs else []
        assert value == pytest.approx(statistics.fmean(score for _, score in leaders) if leaders else 0.0)


@settings(max_examples=40, deadline=None)
@given(fractions)
def test_the_spread_of_k_is_the_sample_deviation_of_the_first_k(scores):
    for k, value in enumerate(compute_spread_curve(scores), 1):
        assert value == pytest.approx(statistics.stdev(scores[:k]) if k > 1 else 0.0, abs=1e-9)
