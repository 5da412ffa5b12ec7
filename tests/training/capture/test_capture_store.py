# SPDX-License-Identifier: Apache-2.0
"""Captures on disk: journals that several processes write, and the folder that holds them."""

import fcntl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._training.capture.capture_store import CaptureStore, append_object, read_objects


def test_a_missing_file_is_an_empty_journal(tmp_path: Path):
    assert read_objects(tmp_path / "none.jsonl").objects == []


def test_folders_are_created_on_the_first_append(tmp_path: Path):
    append_object(tmp_path / "a" / "b.jsonl", {"n": 1})
    assert read_objects(tmp_path / "a" / "b.jsonl").objects == [{"n": 1}]


def test_a_torn_last_line_is_counted_and_does_not_swallow_the_next_append(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    append_object(path, {"n": 1})
    path.write_bytes(path.read_bytes() + b'{"n": 2, "text": "cut of')
    assert read_objects(path).objects == [{"n": 1}]
    append_object(path, {"n": 3})
    lines = read_objects(path)
    assert (lines.objects, lines.unreadable) == ([{"n": 1}, {"n": 3}], [2])


def test_a_line_that_is_json_but_no_object_is_unreadable(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'[1]\n\n{"n": 1}\n')
    lines = read_objects(path)
    assert (lines.objects, lines.unreadable) == ([{"n": 1}], [1])


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(st.text(), max_size=5))
def test_any_text_comes_back_as_it_was(tmp_path_factory, texts: list[str]):
    path = tmp_path_factory.mktemp("journal") / "x.jsonl"
    for text in texts:
        append_object(path, {"text": text})
    assert [value["text"] for value in read_objects(path).objects] == texts


def test_a_line_goes_to_the_file_that_is_there_although_the_one_it_waited_for_is_gone(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    append_object(path, {"n": 1})
    with path.open() as held, ThreadPoolExecutor() as threads:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = threads.submit(append_object, path, {"n": 2})
        path.unlink()
        fcntl.flock(held, fcntl.LOCK_UN)
        waiting.result(30)
    assert read_objects(path).objects == [{"n": 2}]


def test_readers_wait_for_the_writer(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    append_object(path, {"n": 1})
    with path.open("ab") as writer, ThreadPoolExecutor() as threads:
        fcntl.flock(writer, fcntl.LOCK_EX)
        reading = threads.submit(read_objects, path)
        writer.write(b'{"n": 2}\n')
        writer.flush()
        assert not reading.done()
        fcntl.flock(writer, fcntl.LOCK_UN)
        assert reading.result(30).objects == [{"n": 1}, {"n": 2}]


def test_a_store_makes_its_folder_and_each_rollout_has_its_own_file(tmp_path: Path):
    store = CaptureStore(tmp_path / "a" / "b")
    assert store.root.is_dir()
    store.record("0-0", {"q": 1})
    store.record("0-1", {"q": 2})
    assert sorted(path.name for path in store.root.iterdir()) == ["0-0.capture.jsonl", "0-1.capture.jsonl"]
    assert (store.read("0-0"), store.read("0-1"), store.read("9-9")) == ([{"q": 1}], [{"q": 2}], [])


def test_what_json_does_not_know_is_written_as_text(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.record("0", {"path": tmp_path, "big": 2**70, "half": "\ud800", 3: "three", "set": {1}})
    (exchange,) = store.read("0")
    assert exchange == {"path": str(tmp_path), "big": 2**70, "half": "\ud800", "3": "three", "set": "{1}"}


def test_blank_lines_are_skipped_and_a_torn_line_raises_or_is_counted(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.path_for("0").write_bytes(b'{"n": 0}\n\n{"n": 1, "tex\n{"n": 2}\n[3]\n')
    with pytest.raises(orjson.JSONDecodeError):
        store.read("0")
    assert store.read_available("0") == ([(0, {"n": 0}), (2, {"n": 2})], 2)
    assert store.read_available("none") == ([], 0)


def test_a_torn_tail_does_not_swallow_the_next_exchange(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.path_for("0").write_bytes(b'{"n": 0')
    store.record("0", {"n": 1})
    assert store.read_available("0") == ([(1, {"n": 1})], 1)


def test_a_capture_is_marked_incomplete_with_or_without_a_reason(tmp_path: Path):
    store = CaptureStore(tmp_path)
    assert not store.is_incomplete("0-0")
    store.mark_incomplete("0-0")
    assert store.incomplete_path_for("0-0").name == "0-0.capture.incomplete"
    assert (store.is_incomplete("0-0"), store.incomplete_reasons("0-0")) == (True, [])
    for reason in ("cancelled", "write_failed: disk full", "cancelled"):
        store.mark_incomplete("0-0", reason)
    assert store.incomplete_reasons("0-0") == ["cancelled", "write_failed: disk full"]


def test_dropping_a_rollout_removes_its_files_only(tmp_path: Path):
    store = CaptureStore(tmp_path)
    for rollout_id in ("0-0", "0-1"):
        store.record(rollout_id, {})
        store.mark_incomplete(rollout_id)
    store.drop("0-0")
    store.drop("0-0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-1.capture.incomplete", "0-1.capture.jsonl"]


@pytest.mark.parametrize("rollout_id", ["../x", "a/b", "", ".hidden", "a b"])
def test_a_rollout_id_cannot_lead_out_of_the_folder(tmp_path: Path, rollout_id: str):
    store = CaptureStore(tmp_path)
    for method in (store.path_for, store.incomplete_path_for):
        with pytest.raises(ValueError, match="Invalid rollout id"):
            method(rollout_id)


RECORD_MANY = """
import sys
from nemo_gym._training.capture.capture_store import CaptureStore

store, writer = CaptureStore(sys.argv[1]), sys.argv[2]
for number in range(20):
    store.record("0-0", {"writer": writer, "number": number, "filler": "x" * 20_000})
"""


def test_exchanges_of_two_processes_never_mix(tmp_path: Path):
    commands = [[sys.executable, "-c", RECORD_MANY, str(tmp_path), writer] for writer in "ab"]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(300) for process in processes] == [0, 0]
    exchanges = CaptureStore(tmp_path).read("0-0")
    for writer in "ab":
        assert [one["number"] for one in exchanges if one["writer"] == writer] == list(range(20))
