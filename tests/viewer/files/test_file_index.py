# SPDX-License-Identifier: Apache-2.0
import os

import orjson
import pytest

from nemo_gym._viewer.files import file_index as index_module
from nemo_gym._viewer.files.columns import COLUMN_NAMES
from nemo_gym._viewer.files.file_index import ReportError, open_index
from nemo_gym.errors import GymError


def test_rows_are_read_from_the_file_when_asked_for(write, opened, rollout):
    rows = [rollout(task, number, float(number)) for task in range(3) for number in range(2)]
    index = opened(write("r.jsonl", rows))
    assert [index.read_row(row) for row in range(index.n_rows)] == rows
    assert (index.kind, index.name) == ("rollouts", "r.jsonl")
    progress = index.progress
    assert (progress.n_rows, progress.complete, progress.share, progress.n_problems) == (6, True, 1.0, 0)


def test_the_first_row_of_a_task_is_found(write, opened, rollout):
    index = opened(write("r.jsonl", [rollout(1, 0), rollout(1, 1), rollout(2, 0)]))
    assert (index.find_row(1), index.find_row(2), index.find_row(9)) == (0, 2, None)


def test_broken_and_torn_lines_are_counted_and_not_fatal(write, opened, rollout):
    index = opened(write("r.jsonl", [rollout(0), b"{oops", rollout(1), b'{"torn": "no end'], end=b""))
    assert index.n_rows == 2
    progress = index.progress
    assert (progress.n_problems, progress.torn) == (2, True)
    assert [(one.line, "cut off" in one.reason) for one in index.problems] == [(2, False), (4, True)]


def test_a_growing_file_is_followed(write, opened, rollout):
    path = write("r.jsonl", [rollout(0)])
    index = opened(path)
    line = orjson.dumps(rollout(1)) + b"\n"
    with open(path, "ab") as file:
        file.write(line[:40])
        file.flush()
        progress = index.refresh()
        assert (progress.n_rows, progress.torn) == (1, True)
        file.write(line[40:])
        file.flush()
    progress = index.refresh()
    assert (progress.n_rows, progress.torn, progress.generation) == (2, False, 0)
    assert index.read_row(1) == rollout(1)


def test_growth_is_noticed_without_being_asked(write, opened, rollout):
    path = write("r.jsonl", [rollout(0)])
    index = opened(path, poll_s=0.01)
    with open(path, "ab") as file:
        file.write(orjson.dumps(rollout(1)) + b"\n")
    with index._changed:
        assert index._changed.wait_for(lambda: index.n_rows == 2, timeout=300)


def test_a_torn_end_that_a_resumed_run_cuts_off_does_not_start_all_over(write, opened, rollout):
    path = write("r.jsonl", [rollout(0), b'{"torn'], end=b"")
    index = opened(path)
    os.truncate(path, len(orjson.dumps(rollout(0))) + 1)
    with open(path, "ab") as file:
        file.write(orjson.dumps(rollout(5)) + b"\n")
    progress = index.refresh()
    assert (progress.n_rows, progress.generation, progress.n_problems) == (2, 0, 0)


@pytest.mark.parametrize("how", ["replaced", "truncated", "edited"])
def test_a_file_that_is_another_one_is_read_anew(write, opened, rollout, how):
    path = write("r.jsonl", [rollout(0), rollout(1), rollout(2)])
    index = opened(path)
    if how == "replaced":
        os.replace(write("new.jsonl", [rollout(7), rollout(8), rollout(9), rollout(6)]), path)
    elif how == "truncated":
        write("r.jsonl", [rollout(7)])
    else:
        path.write_bytes(path.read_bytes().replace(b'"_ng_task_index":0', b'"_ng_task_index":7'))
        os.utime(path, ns=(0, 0))
    progress = index.refresh()
    assert progress.generation == 1
    assert index.read_row(0)["_ng_task_index"] == 7


def test_a_file_that_vanishes_is_an_error_and_comes_back_as_a_new_one(write, opened, rollout):
    path = write("r.jsonl", [rollout(0)])
    index = opened(path)
    path.unlink()
    progress = index.refresh()
    assert progress.error is not None
    assert "cannot be read" in progress.error
    with pytest.raises(ReportError, match="cannot be read"):
        index.read_row(0)
    write("r.jsonl", [rollout(3)])
    assert index.refresh().error is None
    assert index.read_row(0) == rollout(3)


def test_a_large_file_is_cached_beside_it(write, opened, rollout, monkeypatch, tmp_path):
    monkeypatch.setattr(index_module, "CACHED_FROM_BYTES", 1)
    path = write("r.jsonl", [rollout(0, tools=("search",), overlap=0.5), b"{oops", rollout(1, agent="b")])
    with open_index(path) as first:
        assert first.wait(300)
    assert (tmp_path / ".r.jsonl.ngview").is_file()
    again = opened(path)
    assert again.progress.from_cache
    assert [again.read_row(row) for row in range(again.n_rows)] == [first.read_row(row) for row in range(first.n_rows)]
    assert again.problems == first.problems
    assert again.kind == "rollouts"
    for name in COLUMN_NAMES:
        assert getattr(again.columns, name) == getattr(first.columns, name), name
    assert list(again.columns.toolsets) == [("search",), ()]
    with open(path, "ab") as file:
        file.write(orjson.dumps(rollout(2)) + b"\n")
    assert again.refresh().n_rows == 3


def test_a_small_file_leaves_nothing_beside_it(write, opened, rollout, tmp_path):
    opened(write("r.jsonl", [rollout(0)])).close()
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


def test_a_cache_of_another_file_is_not_believed(write, opened, rollout, monkeypatch):
    monkeypatch.setattr(index_module, "CACHED_FROM_BYTES", 1)
    path = write("r.jsonl", [rollout(0), rollout(1)])
    with open_index(path) as index:
        assert index.wait(300)
    write("r.jsonl", [rollout(5), rollout(6), rollout(7)])
    again = opened(path)
    assert not again.progress.from_cache
    assert [again.read_row(row)["_ng_task_index"] for row in range(3)] == [5, 6, 7]


@pytest.mark.parametrize("damage", [b"", b"nemo-gym view 1\n{}\n", b"nemo-gym view 1\nnonsense", b"\x80\x04pickle"])
def test_a_damaged_cache_is_ignored(write, opened, rollout, tmp_path, damage):
    path = write("r.jsonl", [rollout(0)])
    (tmp_path / ".r.jsonl.ngview").write_bytes(damage)
    assert opened(path).n_rows == 1


def test_a_cut_off_cache_is_ignored(write, opened, rollout, tmp_path, monkeypatch):
    monkeypatch.setattr(index_module, "CACHED_FROM_BYTES", 1)
    path = write("r.jsonl", [rollout(0), rollout(1)])
    with open_index(path) as index:
        assert index.wait(300)
    cached = tmp_path / ".r.jsonl.ngview"
    cached.write_bytes(cached.read_bytes()[:-5])
    again = opened(path)
    assert not again.progress.from_cache
    assert again.n_rows == 2


def test_where_the_folder_cannot_be_written_to_another_one_takes_the_cache(write, rollout, monkeypatch, tmp_path):
    monkeypatch.setattr(index_module, "CACHED_FROM_BYTES", 1)
    path = write("r.jsonl", [rollout(0)])
    (tmp_path / ".r.jsonl.ngview").mkdir()  # nothing can be renamed onto a folder
    elsewhere = tmp_path / "cache"
    with open_index(path, user_cache_dir=elsewhere) as index:
        assert index.wait(300)
    assert len(list(elsewhere.glob("*.ngview"))) == 1
    with open_index(path, user_cache_dir=elsewhere) as index:
        assert index.wait(300)
        assert index.progress.from_cache


def test_what_cannot_be_opened_says_what_to_do(tmp_path):
    with pytest.raises(ReportError, match="there is no file") as missing:
        open_index(tmp_path / "none.jsonl")
    assert isinstance(missing.value, GymError)
    with pytest.raises(ReportError, match="is a folder"):
        open_index(tmp_path)


def test_an_empty_file_is_complete(write, opened):
    index = opened(write("r.jsonl", []))
    assert (index.n_rows, index.progress.complete, index.kind) == (0, True, "other")


def test_a_row_that_is_not_there_is_named(write, opened, rollout):
    index = opened(write("r.jsonl", [rollout(0)]))
    with pytest.raises(ReportError, match="has no row 1: there are 1 so far"):
        index.read_row(1)
