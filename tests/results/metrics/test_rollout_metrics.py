# SPDX-License-Identifier: Apache-2.0
"""Result rows reduced to their numbers."""

import logging
import math

import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, integers, lists, one_of

from nemo_gym._results.metrics.describe import are_binary, describe
from nemo_gym._results.metrics.rollout_metrics import (
    MeasuredRollout,
    NumberReader,
    describe_rollouts,
    group_by_task,
    measure,
)
from tests.support.measured import make_rollout

NUMBERS = one_of(integers(-5, 5), floats(-1e6, 1e6))


def result(task=0, rollout=0, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **fields}


def test_numbers_and_bools_count_and_everything_else_is_left_behind():
    (one,) = measure([result(reward=1, solved=True, note="x", parts={"a": 1}, missing=None, _ng_attempt_index=2)])
    assert one.numbers == {"reward": 1, "solved": 1}


def test_token_counts_of_the_response_are_numbers_too():
    usage = {"input_tokens": 5, "total_tokens": 8, "input_tokens_details": {"cached_tokens": 1}}
    (one,) = measure([result(reward=0.5, response={"usage": usage, "output": []})])
    assert one.numbers == {"reward": 0.5, "input_tokens": 5, "total_tokens": 8}


def test_a_field_of_the_verifier_wins_over_a_token_count_of_the_same_name():
    (one,) = measure([result(total_tokens=1, response={"usage": {"total_tokens": 8}})])
    assert one.numbers == {"total_tokens": 1}


@pytest.mark.parametrize("response", [None, {}, {"usage": None}])
def test_a_response_without_usage_is_no_problem(response):
    assert measure([result(reward=1, response=response)])[0].numbers == {"reward": 1}


def test_rollouts_come_in_order_of_task_and_index():
    keys = [one.key for one in measure([result(1, 0), result(0, 1), result(0, 0)])]
    assert keys == [(0, 0), (0, 1), (1, 0)]


def test_missing_indices_count_as_zero():
    assert measure([{"reward": 1}])[0].key == (0, 0)


def test_the_same_rollout_twice_is_refused_by_name():
    with pytest.raises(ValueError, match=r"more than once among the results: 3:1"):
        measure([result(3, 1), result(3, 1), result(3, 2)])


def test_a_number_that_is_not_finite_is_left_out_and_named(caplog):
    with caplog.at_level(logging.WARNING):
        found = measure([result(0, 0, reward=math.nan, score=1), result(0, 1, reward=math.inf)])
    assert [one.numbers for one in found] == [{"score": 1}, {}]
    assert found[0].reward is None
    assert "'reward' (2)" in caplog.text


def test_a_bool_becomes_a_number_and_no_token_count():
    _, values = NumberReader().read(result(reward=True, response={"usage": {"input_tokens": 3, "cached": True}}))
    assert [(type(value), value) for value in values] == [(int, 1), (int, 3)]


def test_rows_with_the_same_names_share_them():
    reader = NumberReader()
    first, _ = reader.read(result(reward=1.0, note="x"))
    second, _ = reader.read(result(reward=1, note=None, _ng_attempt_index=2))
    assert first is second


def test_every_field_is_described_by_the_rollouts_that_have_it():
    described = describe_rollouts([make_rollout((0, 0), {"reward": 1.0}), make_rollout((0, 1), {"reward": 0, "b": 7})])
    assert (described["mean/reward"], described["mean/b"]) == (0.5, 7.0)
    assert {type(value) for value in described.values()} == {float}
    assert list(described)[:2] == ["mean/reward", "mean/b"]


def test_histograms_come_when_asked_for():
    described = describe_rollouts([make_rollout((0, 0), {"reward": 1})], histograms=True)
    assert described["histogram/reward"] == {"bins": [1, 1], "counts": [1]}
    assert "histogram/reward" not in describe_rollouts([make_rollout((0, 0), {"reward": 1})])


@given(lists(NUMBERS, min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_the_statistics_of_a_field_are_those_of_its_values(values):
    described = describe_rollouts([make_rollout((0, r), {"reward": value}) for r, value in enumerate(values)])
    assert described == {f"{name}/reward": number for name, number in describe(values).items()}


@given(lists(lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_statistics_do_not_depend_on_how_rollouts_name_their_fields(rows):
    shared = ("reward", "b", "c")
    apart = [MeasuredRollout((0, r), row[0], tuple(shared), tuple(row)) for r, row in enumerate(rows)]
    turned = [MeasuredRollout((0, r), row[0], shared[::-1], tuple(row[::-1])) for r, row in enumerate(rows[1:], 1)]
    assert describe_rollouts([apart[0], *turned]) == describe_rollouts(apart)


def test_very_large_numbers_do_not_overflow():
    described = describe_rollouts([make_rollout((0, 0), {"reward": 1e200}), make_rollout((0, 1), {"reward": -3e200})])
    assert described["std/reward"] == pytest.approx(8**0.5 * 1e200)


def test_rollouts_in_order_are_grouped_by_task():
    rollouts = [make_rollout(key, {"reward": 1}) for key in [(0, 0), (0, 1), (3, 0)]]
    assert [(task, [rollout.key for rollout in of_task]) for task, of_task in group_by_task(rollouts)] == [
        (0, [(0, 0), (0, 1)]),
        (3, [(3, 0)]),
    ]
    assert list(group_by_task([])) == []


def test_binary_means_zeros_and_ones_only():
    assert are_binary([0, 1.0, 1])
    assert not are_binary([0.0, 0.5])
