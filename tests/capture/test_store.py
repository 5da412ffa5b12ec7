# SPDX-License-Identifier: Apache-2.0
"""The capture store: one file per rollout, gaps instead of errors."""

from pathlib import Path

import pytest

from nemo_gym._capture.records import CaptureGap, ModelCallRecord
from nemo_gym._capture.store import CaptureStore


def test_each_rollout_has_its_own_file(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.append("0-0", ModelCallRecord(request={"q": 1}))
    store.append("0-1", ModelCallRecord(request={"q": 2}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-0.capture.jsonl", "0-1.capture.jsonl"]
    assert store.rollout_ids() == ["0-0", "0-1"]
    assert [call.request for call in store.read("0-1").calls] == [{"q": 2}]


def test_a_record_comes_back_with_every_field(tmp_path: Path):
    record = ModelCallRecord(
        model_call_id="mc_1",
        dialect="messages",
        model_ref={"type": "responses_api_models", "name": "policy_model"},
        started_at=1.5,
        completed_at=2.5,
        latency_ms=1000.0,
        latency_ttft_ms=200.0,
        status_code=429,
        error_category="rate_limited",
        request={"messages": []},
        response={"error": "slow down"},
    )
    CaptureStore(tmp_path).append("7", record)
    assert CaptureStore(tmp_path).read("7").calls == [record.model_copy(update={"rollout_id": "7"})]


def test_calls_are_read_in_the_order_in_which_they_started(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.append("0-0", ModelCallRecord(model_call_id="second", started_at=2.0))
    store.append("0-0", ModelCallRecord(model_call_id="first", started_at=1.0))
    assert [call.model_call_id for call in store.read("0-0").calls] == ["first", "second"]


def test_fields_that_another_version_wrote_are_kept(tmp_path: Path):
    (tmp_path / "0-0.capture.jsonl").write_text('{"model_call_id": "a", "gpu": "h100"}\n')
    assert dict(CaptureStore(tmp_path).read("0-0").calls[0])["gpu"] == "h100"


def test_a_torn_last_line_is_a_gap(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.append("0-0", ModelCallRecord(model_call_id="a"))
    path = store.path_for("0-0")
    path.write_bytes(path.read_bytes() + b'{"model_call_id": "b", "requ')
    capture = store.read("0-0")
    assert [call.model_call_id for call in capture.calls] == ["a"]
    assert capture.gaps == [CaptureGap("unreadable_record", "0-0.capture.jsonl:2")]


def test_a_record_of_the_wrong_shape_is_a_gap_that_names_the_call(tmp_path: Path):
    (tmp_path / "0-0.capture.jsonl").write_text('{"model_call_id": "a", "dialect": "morse"}\n')
    (gap,) = CaptureStore(tmp_path).read("0-0").gaps
    assert (gap.code, gap.model_call_id) == ("invalid_record", "a")
    assert "dialect" in str(gap.detail)


def test_marking_a_capture_incomplete_leaves_a_marker_file_with_the_reason(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.mark_incomplete("0-0", "cancelled", "the response has no end", "mc_1")
    assert (tmp_path / "0-0.capture.incomplete").exists()
    assert store.read("0-0").gaps == [CaptureGap("cancelled", "the response has no end", "mc_1")]


def test_an_empty_marker_file_still_means_incomplete(tmp_path: Path):
    (tmp_path / "0-0.capture.incomplete").touch()
    assert CaptureStore(tmp_path).read("0-0").gaps == [CaptureGap("incomplete")]


def test_dropping_a_rollout_removes_its_files_only(tmp_path: Path):
    store = CaptureStore(tmp_path)
    for rollout_id in ("0-0", "0-1"):
        store.append(rollout_id, ModelCallRecord())
        store.mark_incomplete(rollout_id)
    store.drop("0-0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-1.capture.incomplete", "0-1.capture.jsonl"]


@pytest.mark.parametrize("rollout_id", ["../x", "a/b", ""])
def test_a_rollout_id_cannot_lead_out_of_the_folder(tmp_path: Path, rollout_id: str):
    with pytest.raises(ValueError, match="rollout id"):
        CaptureStore(tmp_path).append(rollout_id, ModelCallRecord())
