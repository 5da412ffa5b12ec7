# SPDX-License-Identifier: Apache-2.0
import orjson
import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists

from nemo_gym._bench.report import Point, Row, as_object, as_table, from_object, is_over, merge_runs

FIGURES = floats(min_value=0.001, max_value=1e9)


def test_a_figure_within_its_bound_is_ok_and_one_beyond_it_is_not():
    assert Row("a", 2, "x", 4).verdict == "ok"
    assert Row("a", 5, "x", 4).verdict == "OVER"
    assert is_over([Row("a", 1, "x"), Row("b", 5, "x", 4)])
    assert not is_over([Row("a", 1, "x")])


def test_the_table_shows_value_spread_bound_and_verdict():
    table = as_table([Row("a POST", 61.2, "µs of CPU", 100, samples=(60, 61.2, 70))])
    assert " ".join(table.splitlines()[1].split()) == "a POST 61.2 µs of CPU 60 – 70 100 0.61 ok"


def test_few_samples_spread_from_lowest_to_highest_and_many_by_their_middle_half():
    assert Row("a", 2, "s", samples=(1, 2, 9)).spread == (1, 9)
    assert Row("a", 3, "s", samples=(1, 2, 3, 4, 50)).spread == (2, 4)
    assert Row("a", 3, "s").spread is None


@pytest.mark.parametrize(
    ("unit", "better"), [("/s", "higher"), ("a second", "higher"), ("tokens/s", "higher"), ("ms", "lower")]
)
def test_rates_are_better_when_higher_and_costs_when_lower(unit, better):
    assert Row("a", 1, unit).better == better


@given(lists(FIGURES, min_size=1, max_size=9))
def test_runs_are_merged_into_their_median_which_lies_within_their_spread(values):
    [merged] = merge_runs([[Row("a", value, "s", bound=1)] for value in values])
    assert merged.bound == 1
    assert min(values) <= merged.value <= max(values)
    if len(values) > 1:
        assert merged.samples == tuple(values)
        assert merged.spread[0] <= merged.value <= merged.spread[1]


def test_a_row_that_one_run_lacks_keeps_the_figures_of_the_others():
    merged = merge_runs([[Row("a", 1, "s"), Row("b", 2, "s")], [Row("a", 3, "s")]])
    assert [(row.name, row.value) for row in merged] == [("a", 2), ("b", 2)]


@given(FIGURES, lists(FIGURES, max_size=6))
def test_a_row_is_the_same_after_a_round_trip_through_json(value, samples):
    row = Row("a", value, "s", 3.0, tuple(samples), Point("memory, MB", "memory", 32, "in flight"))
    assert from_object(orjson.loads(orjson.dumps(as_object(row)))) == row
