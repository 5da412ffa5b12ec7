# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis.strategies import floats

from nemo_gym._bench.bench_file import Bench
from nemo_gym._bench.compare import as_table, compare, describe_difference
from nemo_gym._bench.report import Row


def verdict(old: Row, new: Row) -> str:
    [change] = compare(Bench((old,)), Bench((new,)))
    return change.verdict


def spread(low: float, middle: float, high: float, unit: str = "ms") -> Row:
    return Row("a", middle, unit, samples=(low, middle, high))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (spread(9, 10, 11), spread(10, 11, 12), "same"),
        (spread(9, 10, 11), spread(12, 13, 14), "worse"),
        (spread(9, 10, 11), spread(5, 6, 7), "better"),
        (spread(9, 10, 11, "/s"), spread(12, 13, 14, "/s"), "better"),
        (spread(9, 10, 11, "/s"), spread(5, 6, 7, "/s"), "worse"),
        (spread(9, 10, 11, "bytes"), spread(5, 6, 7, "bytes"), "changed"),
        (Row("a", 100, "ms"), Row("a", 109, "ms"), "same"),
        (Row("a", 100, "ms"), Row("a", 130, "ms"), "worse"),
    ],
)
def test_a_figure_got_better_or_worse_only_if_the_spreads_lie_apart(old, new, expected):
    assert verdict(old, new) == expected


@given(floats(0.001, 1e6))
def test_a_run_compared_with_itself_has_not_changed(value):
    assert verdict(Row("a", value, "ms"), Row("a", value, "ms")) == "same"


def test_figures_that_only_one_run_has_are_not_compared():
    assert compare(Bench((Row("a", 1, "ms"),)), Bench((Row("b", 1, "ms"), Row("a", 1, "s")))) == []


def test_the_table_tells_the_worst_first_and_leaves_out_what_stayed():
    old = Bench((Row("a", 10, "ms"), Row("b", 10, "ms"), Row("c", 10, "ms")))
    new = Bench((Row("a", 5, "ms"), Row("b", 10, "ms"), Row("c", 20, "ms")))
    assert [line[0] for line in as_table(compare(old, new))] == ["figure", "c", "a"]


def test_another_machine_or_version_is_named():
    post = Row("bare POST", 60, "µs of CPU")
    old = Bench((post,), machine={"cpu": "A", "cores": 2}, versions={"orjson": "3.10"})
    new = Bench((post,), machine={"cpu": "B", "cores": 2}, versions={"orjson": "3.11"})
    told = describe_difference(old, new)
    assert told[:2] == ["another machine: cpu was 'A' and is 'B'", "orjson was 3.10 and is 3.11"]
    assert "60 µs" in told[2]
