# SPDX-License-Identifier: Apache-2.0
"""Rollouts files in memory."""

import logging

import pytest

from nemo_gym._metrics.rollouts import ResultsError
from nemo_gym._results.scored_rollouts import read_rollouts


def test_rollouts_are_grouped_by_agent_and_sorted_by_key(write, result):
    path = write("r.jsonl", [result(1, 0, 1.0, "b"), result(0, 1, 0.0), result(0, 0, 1.0)])
    agents = read_rollouts([path])
    assert [(agent.agent, [rollout.key for rollout in agent.rollouts]) for agent in agents] == [
        ("a", [(0, 0), (0, 1)]),
        ("b", [(1, 0)]),
    ]


def test_a_row_without_a_score_is_no_zero(write, result, caplog):
    path = write("r.jsonl", [result(0, 0, 1.0), result(0, 1, None), result(0, 2, 0.0, _ng_failure_class="x")])
    with caplog.at_level(logging.WARNING):
        [agent] = read_rollouts([path])
    assert ([rollout.key for rollout in agent.rollouts], agent.n_unscored) == ([(0, 0)], 2)
    assert f"2 rows hold no score and are not counted; the first is {path}:2" in caplog.text


def test_a_rollout_in_two_files_is_an_error_that_names_both(write, result):
    paths = [write("one.jsonl", [result(0, 0, 1.0)]), write("two.jsonl", [result(0, 0, 0.0)])]
    with pytest.raises(ResultsError, match=r"one.jsonl:1 and .*two.jsonl:1"):
        read_rollouts(paths)


def test_answers_and_rows_are_kept_where_asked_for(write, result):
    path = write("r.jsonl", [result(0, 0, 1.0, "a", got="x"), result(1, 0, 1.0, "b", got="y")])
    a, b = read_rollouts([path], answer_keys={"a": "got"}, keep_rows_of={"b"})
    assert (a.rollouts[0].answer, a.rows) == ("x", [])
    assert b.rollouts[0].answer is None
    assert [row["got"] for _, row in b.rows] == ["y"]
