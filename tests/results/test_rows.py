# SPDX-License-Identifier: Apache-2.0
"""Reading rollouts files."""

import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans, lists, sampled_from

from nemo_gym._metrics.rollouts import ResultsError
from nemo_gym._results.rows import (
    SeenKeys,
    count_of,
    expand_globs,
    read_planned,
    read_results,
    read_stripped_rows,
    require_key,
    reward_of,
)
from nemo_gym._util.jsonl import JsonlError
from nemo_gym.errors import GymError


def test_a_row_is_stripped_of_everything_large_but_the_token_counts(write, result):
    path = write("r.jsonl", [result(3, 1, 0.5, extra="x", ng_trajectory={"turns": []}, _ng_token_capture=[1])])
    [row] = read_stripped_rows([path])
    assert (row.key, row.agent, str(row.place)) == ((3, 1), "a", f"{path}:1")
    assert row.row == {
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "agent_ref": {"name": "a"},
        "reward": 0.5,
        "extra": "x",
        "response": {"usage": {"input_tokens": 10, "output_tokens": 2}},
    }


def test_a_torn_last_line_is_skipped_with_a_notice(write, result, caplog):
    path = write("r.jsonl", [result(0, 0, 1.0), b'{"_ng_task_index": 1, "rew'], end=b"")
    with caplog.at_level(logging.WARNING):
        assert [row.key for row in read_stripped_rows([path])] == [(0, 0)]
    assert f"{path}:2: the last line was cut off" in caplog.text


def test_a_last_line_that_only_lacks_its_newline_counts(write, result):
    path = write("r.jsonl", [result(0, 0, 1.0), result(1, 0, 1.0)], end=b"")
    assert [row.key for row in read_stripped_rows([path])] == [(0, 0), (1, 0)]


@pytest.mark.parametrize("bad", [b'{"reward": NaN}', b"[1]", b"{"])
def test_a_bad_line_in_the_middle_is_an_error_with_file_and_line(write, result, bad):
    path = write("r.jsonl", [result(0, 0, 1.0), b"", bad, result(1, 0, 1.0)])
    with pytest.raises(JsonlError, match=f"{path}:3: "):
        list(read_stripped_rows([path]))


@pytest.mark.parametrize("index", ["7", -1, 1.5, True])
def test_an_index_that_is_none_is_an_error_with_file_and_line(write, result, index):
    path = write("r.jsonl", [result(0, 0, 1.0) | {"_ng_task_index": index}])
    with pytest.raises(ResultsError, match=f"{path}:1: '_ng_task_index' is {index!r}"):
        list(read_stripped_rows([path]))


PLANNED = [
    b'{"q":"x","_ng_task_index":0,"_ng_rollout_index":0}',
    b'{"q":"x","_ng_task_index":0,"_ng_rollout_index":1}',
    b'{"q":"x","_ng_task_index":0,"_ng_rollout_index":12}',
    b'{"q":"x","_ng_task_index":0,"_ng_rollout_index":2} ',
    b'{"q":"x","_ng_task_index": 0, "_ng_rollout_index": 1}',
    b'{"q":"y","_ng_task_index":1,"_ng_rollout_index":0}',
    b'{"_ng_task_index":3,"_ng_rollout_index":0,"_ng_rollout_index":4}',
    b'{"_ng_task_index":3,"nested":{"_ng_task_index":9,"_ng_rollout_index":8}}',
    b'{"_ng_task_index":3,"nested":{"_ng_task_index":9,"_ng_rollout_index":7}}',
    b'{"_ng_task_index":3,"text":",\\"_ng_rollout_index\\":7}","_ng_rollout_index":2}',
    b"",
]


@given(lists(sampled_from(PLANNED), max_size=8), booleans())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_planned_rows_are_those_of_the_lines_although_repeats_are_not_parsed(write, lines, ends):
    path = write("p.jsonl", lines, end=b"\n" if ends else b"")
    plain = [(line, offset, require_key(row, path, line), row) for line, offset, _, row in read_results(path)]
    found = list(read_planned(path))
    assert [one[:3] for one in found] == [one[:3] for one in plain]
    for (*_, key, row), (*_, plain_row) in zip(found, plain, strict=True):
        assert {**row, "_ng_rollout_index": key[1]} == {**plain_row, "_ng_rollout_index": key[1]}


@pytest.mark.parametrize(
    "bad",
    [
        b',"_ng_rollout_index":1}',
        b'{"_ng_task_index":0,"_ng_rollout_index":01}',
        b'{"_ng_task_index":0,"_ng_rollout_index":1}}',
        b'{"_ng_task_index":0,"_ng_rollout_index":-1}',
        b'{"_ng_task_index":0,"_ng_rollout_index":1.5}',
    ],
)
def test_a_bad_repeat_is_an_error_with_file_and_line(write, bad):
    path = write("p.jsonl", [b'{"_ng_task_index":0,"_ng_rollout_index":0}', bad, b"{}"])
    with pytest.raises(GymError, match=f"{path}:2: "):
        list(read_planned(path))


def test_a_bad_first_line_is_an_error_too(write):
    path = write("p.jsonl", [b',"_ng_rollout_index":1}', b"{}"])
    with pytest.raises(JsonlError, match=f"{path}:1: "):
        list(read_planned(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ResultsError, match=r"nowhere\.jsonl' cannot be read: No such file"):
        list(read_stripped_rows([tmp_path / "nowhere.jsonl"]))


def test_a_comma_list_of_patterns_gives_every_file_once(write, tmp_path):
    for name in ("a.jsonl", "b.jsonl", "c.txt"):
        write(name, [])
    found = expand_globs(f"{tmp_path}/b.jsonl, {tmp_path}/*.jsonl,")
    assert [path.name for path in found] == ["b.jsonl", "a.jsonl"]


def test_wildcards_leave_out_the_other_files_of_a_run(write, tmp_path):
    for name in ("r.jsonl", "r_failures.jsonl", "r_materialized_inputs.jsonl", "r_reward_profiling.jsonl"):
        write(name, [])
    assert [path.name for path in expand_globs(f"{tmp_path}/*.jsonl")] == ["r.jsonl"]
    assert [path.name for path in expand_globs(f"{tmp_path}/r_failures.jsonl")] == ["r_failures.jsonl"]


@pytest.mark.parametrize("pattern", ["nothing-*.jsonl", ""])
def test_no_match_is_an_error(tmp_path, monkeypatch, pattern):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ResultsError, match="no rollouts file"):
        expand_globs(pattern)


def test_a_rollout_that_was_read_twice_is_named_with_both_places():
    seen = SeenKeys()
    seen.begin("empty.jsonl")
    seen.begin("one.jsonl")
    seen.add((0, 0), 1)
    seen.add((4, 2), 2)
    seen.begin("two.jsonl")
    seen.add((0, 1), 1)
    with pytest.raises(ResultsError, match=r"task 4, rollout 2 occurs twice: one.jsonl:2 and two.jsonl:5"):
        seen.add((4, 2), 5)


def test_only_a_number_without_a_failure_is_a_score(result):
    assert reward_of(result(0, 0, 1)) == 1.0
    assert reward_of(result(0, 0, True)) == 1.0
    assert reward_of(result(0, 0, None)) is None
    assert reward_of(result(0, 0, "1")) is None
    assert reward_of(result(0, 0, 0.0, _ng_failure_class="judge_failed")) is None


def test_a_count_says_of_how_many():
    assert count_of(3, 4) == "3 of 4"
    assert count_of(3, None) == "3 of ?"
