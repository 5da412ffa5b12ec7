# SPDX-License-Identifier: Apache-2.0
"""Rollouts in memory, and the entries made of them."""

import logging

import pytest
from hypothesis import given, settings
from hypothesis.strategies import booleans, dictionaries, floats, integers, lists, one_of, sampled_from

from nemo_gym._metrics.describe import describe_fields
from nemo_gym._results.rows import ResultsError
from nemo_gym._results.runs import Run, are_binary, describe_runs, read_runs, tasks_of

NUMBERS = one_of(integers(-5, 5), floats(-1e6, 1e6))


def test_runs_are_grouped_by_agent_and_sorted_by_key(write, result):
    path = write("r.jsonl", [result(1, 0, 1.0, "b"), result(0, 1, 0.0), result(0, 0, 1.0)])
    agents = read_runs([path])
    assert [(agent.agent, [run.key for run in agent.runs]) for agent in agents] == [
        ("a", [(0, 0), (0, 1)]),
        ("b", [(1, 0)]),
    ]


def test_a_row_without_a_score_is_no_zero(write, result, caplog):
    path = write("r.jsonl", [result(0, 0, 1.0), result(0, 1, None), result(0, 2, 0.0, _ng_failure_class="x")])
    with caplog.at_level(logging.WARNING):
        [agent] = read_runs([path])
    assert ([run.key for run in agent.runs], agent.n_unscored) == ([(0, 0)], 2)
    assert f"2 rows hold no score and are not counted; the first is {path}:2" in caplog.text


def test_a_rollout_in_two_files_is_an_error_that_names_both(write, result):
    paths = [write("one.jsonl", [result(0, 0, 1.0)]), write("two.jsonl", [result(0, 0, 0.0)])]
    with pytest.raises(ResultsError, match=r"one.jsonl:1 and .*two.jsonl:1"):
        read_runs(paths)


def test_answers_and_rows_are_kept_where_asked_for(write, result):
    path = write("r.jsonl", [result(0, 0, 1.0, "a", got="x"), result(1, 0, 1.0, "b", got="y")])
    a, b = read_runs([path], answer_keys={"a": "got"}, keep_rows_of={"b"})
    assert (a.runs[0].answer, a.rows) == ("x", [])
    assert b.runs[0].answer is None
    assert [row["got"] for _, row in b.rows] == ["y"]


@given(lists(dictionaries(sampled_from("abc"), NUMBERS, max_size=3), min_size=1, max_size=6), booleans())
@settings(max_examples=100, deadline=None)
def test_statistics_are_those_of_the_metrics(records, alike):
    records = [{"reward": 0, **record} for record in records]
    records = [records[0]] * len(records) if alike else records
    ours = describe_runs([Run.of((0, index), record) for index, record in enumerate(records)])
    theirs = describe_fields(records)
    assert list(ours) == list(theirs)
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)
    assert {type(value) for value in ours.values()} == {float}


@given(lists(lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_statistics_do_not_depend_on_how_runs_name_their_fields(rows):
    shared = ("reward", "b", "c")
    apart = [Run((0, r), row[0], tuple(shared), tuple(row)) for r, row in enumerate(rows)]
    turned = [Run((0, r), row[0], shared[::-1], tuple(row[::-1])) for r, row in enumerate(rows[1:], 1)]
    assert describe_runs([apart[0], *turned]) == describe_runs(apart)


def test_very_large_numbers_do_not_overflow():
    described = describe_runs([Run.of((0, r), {"reward": reward}) for r, reward in enumerate([1e200, -3e200])])
    assert described["std/reward"] == pytest.approx(8**0.5 * 1e200)


def test_runs_in_order_are_grouped_by_task():
    runs = [Run.of(key, {"reward": 1}) for key in [(0, 0), (0, 1), (3, 0)]]
    assert [(task, [run.key for run in of_task]) for task, of_task in tasks_of(runs)] == [
        (0, [(0, 0), (0, 1)]),
        (3, [(3, 0)]),
    ]
    assert list(tasks_of([])) == []


def test_binary_means_zeros_and_ones_only():
    assert are_binary([0, 1.0, 1])
    assert not are_binary([0.0, 0.5])
