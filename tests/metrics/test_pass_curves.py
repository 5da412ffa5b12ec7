# SPDX-License-Identifier: Apache-2.0
"""Curves over k for one task, by hand, by brute force and by property."""

import statistics
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._metrics.pass_at_k import average_curve, majority_curve, pass_curve, spread_curve

binary = st.lists(st.sampled_from([0, 1]), min_size=1, max_size=9)
fractions = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=9)


def test_pass_at_k_of_one_right_answer_in_four():
    # 1 - C(3,k)/C(4,k): 1 - 3/4, 1 - 3/6, 1 - 1/4, 1 - 0
    assert list(pass_curve([0, 0, 1, 0])) == [0.25, 0.5, 0.75, 1.0]


def test_pass_at_k_of_fractions_is_the_best_of_the_first_k():
    assert pass_curve([0.2, 0.5, 0.1]) == [0.2, 0.5, 0.5]


@settings(max_examples=60, deadline=None)
@given(binary)
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(scores):
    for k, value in enumerate(pass_curve(scores), 1):
        subsets = list(combinations(scores, k))
        assert value == pytest.approx(sum(map(any, subsets)) / len(subsets))


@settings(max_examples=60, deadline=None)
@given(binary | fractions)
def test_pass_at_k_never_falls_as_k_grows(scores):
    curve = list(pass_curve(scores))
    assert curve == sorted(curve)


@settings(max_examples=60, deadline=None)
@given(binary)
def test_pass_at_1_of_binary_scores_is_their_mean(scores):
    assert pass_curve(scores)[0] == pytest.approx(statistics.fmean(scores))


@settings(max_examples=60, deadline=None)
@given(binary.flatmap(lambda scores: st.tuples(st.just(scores), st.permutations(scores))))
def test_the_order_of_binary_scores_does_not_matter_to_pass_at_k(pair):
    assert pass_curve(pair[0]) == pass_curve(pair[1])


def test_pass_at_k_of_many_runs_stays_exact():
    curve = pass_curve([1] + [0] * 1999)
    assert curve[999] == 0.5
    assert curve[-1] == 1.0


@settings(max_examples=60, deadline=None)
@given(fractions)
def test_the_average_of_k_is_the_mean_of_the_first_k(scores):
    for k, value in enumerate(average_curve(scores), 1):
        assert value == pytest.approx(statistics.fmean(scores[:k]))


def test_the_commonest_answer_gives_the_majority_score():
    assert majority_curve(["4", "5", "4"], [1, 0, 1]) == [1.0, 0.5, 1.0]


def test_ties_of_the_majority_are_averaged():
    assert majority_curve(["a", "b", "c"], [1, 0, 0])[-1] == pytest.approx(1 / 3)


def test_runs_without_an_answer_have_no_vote():
    assert majority_curve([None, None, "4"], [0, 0, 1]) == [0.0, 0.0, 1.0]


def test_without_any_answer_the_majority_scores_zero():
    assert majority_curve([None, None], [1, 1]) == [0.0, 0.0]


def test_the_same_answer_with_two_scores_is_two_candidates():
    assert majority_curve(["4", "4", "4"], [1, 0, 1]) == [1.0, 0.5, 1.0]


def test_answers_that_are_lists_are_compared_by_content():
    assert majority_curve([[[1, 2]], [[1, 2]], [[3]]], [1, 1, 0])[-1] == 1.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from([0, 0.5, 1])), min_size=1, max_size=9)
)
def test_the_majority_curve_agrees_with_counting_anew_for_every_k(runs):
    answers, scores = [run[0] for run in runs], [run[1] for run in runs]
    for k, value in enumerate(majority_curve(answers, scores), 1):
        pairs = [run for run in runs[:k] if run[0] is not None]
        leaders = [pair for pair in set(pairs) if pairs.count(pair) == max(map(pairs.count, pairs))] if pairs else []
        assert value == pytest.approx(statistics.fmean(score for _, score in leaders) if leaders else 0.0)


@settings(max_examples=60, deadline=None)
@given(fractions)
def test_the_spread_of_k_is_the_sample_deviation_of_the_first_k(scores):
    for k, value in enumerate(spread_curve(scores), 1):
        assert value == pytest.approx(statistics.stdev(scores[:k]) if k > 1 else 0.0, abs=1e-9)
