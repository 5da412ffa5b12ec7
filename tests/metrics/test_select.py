# SPDX-License-Identifier: Apache-2.0
"""Picking key metrics."""

import pytest

from nemo_gym._metrics.select import highest_k, means

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
    assert highest_k(METRICS, "pass@{k}") == {"pass@10/accuracy": 80.0, "pass@10/no_answer": 5.0}


def test_spreads_are_left_out_unless_named():
    assert highest_k(METRICS, "pass@1[avg-of-{k}]") == {"pass@1[avg-of-10]/accuracy": 55.0}
    named = highest_k(METRICS, "pass@1[avg-of-{k}]", score_names=["accuracy", "accuracy/std_dev_across_runs"])
    assert len(named) == 2


def test_scores_can_be_chosen_and_excluded():
    assert highest_k(METRICS, "pass@{k}", score_names=["no_answer"]) == {"pass@10/no_answer": 5.0}
    assert highest_k(METRICS, "pass@{k}", exclude_names=["no_answer"]) == {"pass@10/accuracy": 80.0}


def test_nothing_that_matches_gives_nothing():
    assert highest_k(METRICS, "majority@{k}") == {}


def test_a_pattern_without_k_is_refused():
    with pytest.raises(ValueError, match=r"hint: write it as in 'pass@\{k\}'"):
        highest_k(METRICS, "pass@1")


def test_means_are_the_means():
    assert means(METRICS) == {"mean/reward": 0.5}
