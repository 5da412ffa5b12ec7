# SPDX-License-Identifier: Apache-2.0
"""A slice of the simulation behind our 95 % intervals; `python -m nemo_gym._bench.coverage` runs all of it."""

import pytest

from nemo_gym._bench.coverage import Cell, measure_coverage, measure_false_alarms

RUNS = 400
# With 400 runs the figure is off by chance by up to three percentage points.
LOWEST, HIGHEST = 0.92, 0.98


@pytest.mark.parametrize(
    "cell",
    [
        Cell(3, 4, graded=True, spread=4.0),
        Cell(10, 1, graded=True, spread=4.0),
        Cell(30, 4, graded=True, spread=4.0, missing=0.2),
        Cell(20, 1),
        Cell(30, 4, 0.8, missing=0.2),
        Cell(100, 1, 0.8),
        Cell(100, 4, 0.95, missing=0.2),
    ],
    ids=str,
)
def test_an_interval_contains_the_truth_as_often_as_it_says(cell):
    assert LOWEST <= measure_coverage(cell, RUNS) <= HIGHEST


@pytest.mark.parametrize(
    "cell", [Cell(3, 1, 0.8), Cell(5, 16, 0.95), Cell(10, 16, 0.95), Cell(20, 16, 0.95), Cell(10, 4, 0.8, missing=0.2)]
)
def test_few_tasks_that_pass_or_fail_have_an_interval_that_is_rather_too_wide(cell):
    assert measure_coverage(cell, RUNS) >= 0.95


@pytest.mark.parametrize(("repeats", "others"), [(1, 1), (4, 4), (2, 1)])
def test_equal_models_are_told_apart_no_more_often_than_chance_allows(repeats, others):
    alarms, hits = measure_false_alarms(Cell(50, repeats), others, RUNS)
    assert alarms <= 0.08
    assert hits >= 0.92
