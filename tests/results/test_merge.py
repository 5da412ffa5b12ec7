# SPDX-License-Identifier: Apache-2.0
"""Merging shards."""

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import dictionaries, integers, tuples

from nemo_gym._results import merge
from nemo_gym._results.merge import merge_shards
from nemo_gym._results.metrics.rollout_metrics import ResultsError
from nemo_gym._results.result_rows import read_results, read_rollouts


@given(dictionaries(tuples(integers(0, 10**9), integers(0, 10**6)), integers(0, 3), max_size=30))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_merge_is_a_sort(write, result, tmp_path, shard_of):
    shards = [
        write(f"s{n}.jsonl", [result(*key, 1.0) for key, shard in shard_of.items() if shard == n], end=b"")
        for n in range(4)
    ]
    merge_shards(shards, tmp_path / "all.jsonl")
    assert [line.key for line in read_results(tmp_path / "all.jsonl")] == sorted(shard_of)


def test_rows_are_copied_as_they_are(write, tmp_path):
    first = b'{"_ng_task_index": 0,  "_ng_rollout_index": 1, "x": 1.50, "y": "\\u00e9"}'
    second = b'{"_ng_task_index":0,"_ng_rollout_index":0}'
    merge_shards([write("a.jsonl", [first, b"", second])], tmp_path / "all.jsonl")
    assert (tmp_path / "all.jsonl").read_bytes() == second + b"\n" + first + b"\n"


def test_more_shards_are_merged_than_files_may_be_open(write, result, tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "_MOST_OPEN", 2)
    shards = [write(f"s{n}.jsonl", [result(t, n, 1.0) for t in (2, 1, 0)]) for n in range(5)]
    merge_shards(shards, tmp_path / "all.jsonl")
    keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in _rows(tmp_path / "all.jsonl")]
    assert keys == [(t, n) for t in range(3) for n in range(5)]


def test_a_rollout_in_two_shards_is_an_error_that_names_both_and_writes_nothing(write, result, tmp_path):
    a = write("a.jsonl", [result(0, 0, 1.0), result(5, 1, 1.0)])
    b = write("b.jsonl", [b"", result(5, 1, 0.0)])
    with pytest.raises(
        ResultsError, match=rf"task 5, rollout 1 occurs twice: {a}:2 and {b}:2.\nhint: shards of one run share no"
    ):
        merge_shards([a, b], tmp_path / "all.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]


def test_the_output_may_not_be_one_of_several_shards(write, result, tmp_path):
    a, b = write("a.jsonl", [result(0, 0, 1.0)]), write("b.jsonl", [result(1, 0, 1.0)])
    with pytest.raises(ResultsError, match="is itself one of the 2 files"):
        merge_shards([a, b], tmp_path / "a.jsonl")
    assert len(_rows(a)) == 1


def test_a_file_can_be_sorted_in_place(write, result):
    a = write("a.jsonl", [result(1, 0, 1.0), result(0, 0, 1.0)])
    merge_shards([a], a)
    assert [row["_ng_task_index"] for row in _rows(a)] == [0, 1]


def test_rows_that_follow_one_another_are_copied_together(write, result, tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "_MOST_AT_ONCE_BYTES", 300)
    shards = [write("a.jsonl", [result(t, 0, 1.0) for t in range(10)], end=b""), write("b.jsonl", [result(3, 1, 1.0)])]
    merge_shards(shards, tmp_path / "all.jsonl")
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in _rows(tmp_path / "all.jsonl")] == [
        *((t, 0) for t in range(4)),
        (3, 1),
        *((t, 0) for t in range(4, 10)),
    ]


def test_the_rollouts_of_a_merge_come_with_it(write, result, tmp_path):
    shards = [write("a.jsonl", [result(1, 0, 1.0), result(0, 1, None)]), write("b.jsonl", [result(0, 0, 0.0)])]
    agents = merge_shards(shards, tmp_path / "all.jsonl")
    assert agents == read_rollouts([tmp_path / "all.jsonl"])


def test_a_shard_that_shrinks_meanwhile_is_an_error_and_nothing_is_written(write, result, tmp_path, monkeypatch):
    a = write("a.jsonl", [result(1, 0, 1.0), result(0, 0, 1.0)])
    monkeypatch.setattr(merge.os, "pread", lambda *_: b"")
    with pytest.raises(ResultsError, match=r"a\.jsonl' has become shorter"):
        merge_shards([a], tmp_path / "all.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl"]


def _rows(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
