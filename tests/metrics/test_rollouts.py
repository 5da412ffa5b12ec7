# SPDX-License-Identifier: Apache-2.0
"""Result rows reduced to their numbers."""

import logging
import math

import pytest

from nemo_gym._metrics.rollouts import measure


def result(task=0, rollout=0, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **fields}


def test_numbers_and_bools_count_and_everything_else_is_left_behind():
    (one,) = measure([result(reward=1, solved=True, note="x", parts={"a": 1}, missing=None, _ng_attempt_index=2)])
    assert one.fields() == {"reward": 1, "solved": 1}


def test_token_counts_of_the_response_are_numbers_too():
    usage = {"input_tokens": 5, "total_tokens": 8, "input_tokens_details": {"cached_tokens": 1}}
    (one,) = measure([result(reward=0.5, response={"usage": usage, "output": []})])
    assert one.fields() == {"reward": 0.5, "input_tokens": 5, "total_tokens": 8}


def test_a_field_of_the_verifier_wins_over_a_token_count_of_the_same_name():
    (one,) = measure([result(total_tokens=1, response={"usage": {"total_tokens": 8}})])
    assert one.fields() == {"total_tokens": 1}


@pytest.mark.parametrize("response", [None, {}, {"usage": None}])
def test_a_response_without_usage_is_no_problem(response):
    assert measure([result(reward=1, response=response)])[0].usage == {}


def test_rollouts_come_in_order_of_task_and_index():
    keys = [one.key for one in measure([result(1, 0), result(0, 1), result(0, 0)])]
    assert keys == [(0, 0), (0, 1), (1, 0)]


def test_missing_indices_count_as_zero():
    assert measure([{"reward": 1}])[0].key == (0, 0)


def test_the_same_rollout_twice_is_refused_by_name():
    with pytest.raises(ValueError, match=r"more than once among the results: 3:1"):
        measure([result(3, 1), result(3, 1), result(3, 2)])


def test_the_info_of_a_rollout_names_it_and_holds_its_numbers():
    (one,) = measure([result(2, 3, reward=1.0, response={"usage": {"output_tokens": 7}})])
    assert one.info() == {
        "rollout_id": "2:3",
        "_ng_task_index": 2,
        "_ng_rollout_index": 3,
        "reward": 1.0,
        "output_tokens": 7,
    }


def test_a_number_that_is_not_finite_is_left_out_and_named(caplog):
    with caplog.at_level(logging.WARNING):
        found = measure([result(0, 0, reward=math.nan, score=1), result(0, 1, reward=math.inf)])
    assert [one.fields() for one in found] == [{"score": 1}, {}]
    assert found[0].info()["reward"] is None
    assert "'reward' (2)" in caplog.text
