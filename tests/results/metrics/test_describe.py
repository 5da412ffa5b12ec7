# SPDX-License-Identifier: Apache-2.0
"""Statistics of lists of numbers."""

import logging
import math
import statistics
from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._results.metrics.describe import describe, histogram, make_histogram, mean, to_finite, warn_of_broken

numbers = st.lists(st.integers(-1000, 1000) | st.floats(-1e6, 1e6), min_size=1, max_size=30)


def test_the_five_statistics_of_a_hand_computed_list():
    assert describe([1, 2, 4, 5]) == {
        "mean": 3.0,
        "max": 5,
        "min": 1,
        "median": 3.0,
        "std": pytest.approx(math.sqrt(10 / 3)),
    }


@pytest.mark.parametrize("values", [[7], [7, 9], [7, 7, 7]])
def test_all_statistics_of_token_counts_are_floats(values):
    described, edges = describe(values), histogram(values)["bins"]
    assert {type(value) for value in [*described.values(), *edges]} == {float}


def test_the_deviation_of_a_single_value_is_zero():
    assert describe([0.7]) == {"mean": 0.7, "max": 0.7, "min": 0.7, "median": 0.7, "std": 0.0}


def test_the_median_of_an_odd_number_of_values_is_the_middle_one():
    assert describe([9, 1, 5])["median"] == 5.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "1", [1], 10**400])
def test_only_finite_numbers_are_numbers(value):
    assert to_finite(value) is None


def test_a_bool_is_zero_or_one():
    assert to_finite(True) == 1
    assert not isinstance(to_finite(True), bool)


@settings(max_examples=40, deadline=None)
@given(numbers)
def test_the_statistics_agree_with_the_standard_library(values):
    found = describe(values)
    assert found["mean"] == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert found["median"] == pytest.approx(statistics.median(values), abs=1e-9)
    assert found["std"] == pytest.approx(statistics.stdev(values) if len(values) > 1 else 0.0, abs=1e-6, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(numbers)
def test_min_median_mean_and_max_are_in_order(values):
    found = describe(values)
    assert found["min"] <= found["median"] <= found["max"]
    assert found["min"] - 1e-9 <= found["mean"] <= found["max"] + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=10))
def test_no_finite_input_gives_nan(values):
    assert not any(math.isnan(value) for value in describe(values).values())


def test_very_large_values_do_not_overflow():
    assert describe([1e200, 3e200])["std"] == pytest.approx(math.sqrt(2) * 1e200)
    assert describe([1.7e308, 1.7e308])["mean"] == pytest.approx(1.7e308)


@settings(max_examples=40, deadline=None)
@given(numbers | st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=10))
def test_a_histogram_counts_every_value_once(values):
    found = histogram(values)
    assert sum(found["counts"]) == len(values)
    assert len(found["bins"]) == len(found["counts"]) + 1
    assert found["bins"][0] == min(values)
    assert found["bins"][-1] == max(values)


def test_a_histogram_of_equal_values_has_one_bin():
    assert histogram([2, 2, 2]) == {"bins": [2, 2], "counts": [3]}


def test_a_histogram_puts_values_into_ten_bins():
    assert histogram(list(range(11)))["counts"] == [1] * 9 + [2]


def test_the_warning_names_the_fields_that_were_not_numbers(caplog):
    with caplog.at_level(logging.WARNING):
        warn_of_broken(Counter({"reward": 2, "score": 1}))
    assert "'reward' (2), 'score' (1)" in caplog.text


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_a_histogram_to_show_counts_every_value_once(values):
    made = make_histogram(values)
    assert sum(made.counts) == len(values)
    assert len(made.edges) == len(made.counts) + 1 == len(made.labels) + 1


@pytest.mark.parametrize("values", [[math.inf, -math.inf], [1.7e308, 1.7e308, math.inf, -math.inf]])
def test_infinities_that_cancel_each_other_out_have_no_mean(values):
    assert math.isnan(mean(values))
