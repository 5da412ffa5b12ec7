# SPDX-License-Identifier: Apache-2.0
"""Intervals of means over tasks."""

import math

import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, integers, lists

from nemo_gym._results.metrics.intervals import compute_interval, compute_t_cdf, compute_t_quantile


@pytest.mark.parametrize(
    ("p", "df", "value"),
    [
        # A printed table of Student's t.
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 4, 2.776),
        (0.975, 9, 2.262),
        (0.975, 30, 2.042),
        (0.975, 120, 1.980),
        (0.995, 7, 3.499),
        (0.95, 5, 2.015),
        (0.80, 10, 0.879),
        (0.025, 9, -2.262),
    ],
)
def test_quantiles_are_those_of_the_table(p, df, value):
    assert compute_t_quantile(p, df) == pytest.approx(value, abs=5e-4)


def test_with_one_degree_of_freedom_it_is_the_cauchy_distribution():
    assert compute_t_quantile(0.975, 1) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-10)


def test_with_many_degrees_of_freedom_it_is_the_normal_distribution():
    assert compute_t_quantile(0.975, 10_000_000) == pytest.approx(1.959963984540054, abs=1e-5)


@given(integers(1, 2000), floats(0.6, 0.999))
@settings(max_examples=50, deadline=None)
def test_a_quantile_undoes_the_distribution(df, p):
    assert compute_t_cdf(compute_t_quantile(p, df), df) == pytest.approx(p, abs=1e-9)


def test_an_interval_equals_the_one_computed_by_hand():
    # Mean 0.4, sample deviation sqrt(0.3), standard error sqrt(0.06), t(4) = 2.7764.
    interval = compute_interval([0.0, 0.0, 0.0, 1.0, 1.0])
    assert interval.estimate == pytest.approx(0.4)
    assert interval.stderr == pytest.approx(0.244949)
    assert interval.as_json()["ci95"] == pytest.approx([0.4 - 0.680087, 0.4 + 0.680087], abs=1e-5)
    assert interval.n_tasks == 5


def test_shares_stay_between_nothing_and_all():
    interval = compute_interval([0.0, 0.0, 0.0, 1.0, 1.0], 100.0, binary=True)
    # t(4) = 2.7764; with two more tasks of the largest spread the variance is (1.2 + 2 · 0.24306) / 6 = 0.28102,
    # so that t² · variance / 5 = 0.43325, the middle (0.4 · 0.24 + 0.21662) / 0.67325 and the reach 0.26811 / 0.67325.
    assert interval.as_json()["ci95"] == pytest.approx([6.61, 86.26], abs=0.01)


def test_the_pass_rates_of_few_tasks_do_not_pass_for_those_of_all():
    interval = compute_interval([0.5] * 5, binary=True)
    assert interval.low < 0.3
    assert interval.high > 0.7


@given(floats(-1e6, 1e6).filter(lambda value: value not in (0, 1)), integers(2, 50))
@settings(max_examples=30, deadline=None)
def test_equal_rewards_that_are_not_pass_or_fail_have_no_interval(value, n):
    interval = compute_interval([value] * n)
    assert (interval.low, interval.high, interval.no_interval) == (None, None, "no spread seen")
    assert interval.as_json()["no_interval"] == "no spread seen"


def test_a_single_task_has_no_interval():
    entry = {"estimate": 0.3, "ci95": None, "stderr": None, "n_tasks": 1, "no_interval": "one task"}
    assert compute_interval([0.3]).as_json() == entry


def test_five_of_five_is_no_proof_of_always():
    # (0.025)^(1/5): the exact interval of five passes in five.
    assert compute_interval([1.0] * 5, binary=True).as_json()["ci95"] == pytest.approx([0.47818, 1.0], abs=1e-5)
    assert compute_interval([0.0] * 5, binary=True).as_json()["ci95"] == pytest.approx([0.0, 0.52182], abs=1e-5)


@given(lists(floats(-1e6, 1e6), min_size=2, max_size=50))
@settings(max_examples=50, deadline=None)
def test_an_interval_contains_its_estimate(values):
    interval = compute_interval(values)
    assert interval.no_interval or interval.low <= interval.estimate <= interval.high


@given(lists(floats(0, 1), min_size=2, max_size=50))
@settings(max_examples=50, deadline=None)
def test_an_interval_of_shares_contains_its_estimate_and_stays_in_range(values):
    interval = compute_interval(values, 100.0, binary=True)
    assert -1e-9 <= interval.low <= interval.estimate + 1e-9
    assert interval.estimate - 1e-9 <= interval.high <= 100.0 + 1e-9
