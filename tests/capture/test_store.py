# SPDX-License-Identifier: Apache-2.0
"""The capture store: one file per rollout, on the disk when `record` returns, and read even if a line is torn."""

import multiprocessing
from pathlib import Path

import pytest

from nemo_gym._capture.store import CaptureStore


def record_many(root: str, writer: int, count: int) -> None:
    store = CaptureStore(root)
    for number in range(count):
        store.record("0-0", {"writer": writer, "number": number, "filler": "x" * 20_000})


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
    with pytest.raises(ValueError, match=r"Expecting|Invalid|Unterminated"):
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


def test_exchanges_of_two_processes_never_mix(tmp_path: Path):
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=record_many, args=(str(tmp_path), number, 20)) for number in range(2)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    exchanges = CaptureStore(tmp_path).read("0-0")
    for writer in range(2):
        assert [one["number"] for one in exchanges if one["writer"] == writer] == list(range(20))
