# SPDX-License-Identifier: Apache-2.0
"""The public names of model-call capture: settings, reading, and the block in a result row."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.model_call_capture import (
    CaptureStore,
    ModelCallCaptureConfig,
    ModelCallRecord,
    aggregate_model_call_metrics,
    merge_model_call_capture_into_record,
    read_model_call_records,
)


def test_capture_is_off_by_default():
    assert ModelCallCaptureConfig().open_store() is None


def test_the_settings_are_read_from_the_whole_config(tmp_path: Path):
    config = ModelCallCaptureConfig.model_validate(
        {"observability_enabled": True, "model_call_capture_dir": str(tmp_path), "policy_model": {"x": 1}}
    )
    store = config.open_store()
    assert store is not None
    assert store.capture_dir == tmp_path


def test_the_settings_are_read_from_an_omegaconf_config(tmp_path: Path):
    config = OmegaConf.create({"observability_enabled": True, "model_call_capture_dir": str(tmp_path)})
    assert ModelCallCaptureConfig.from_global_config(config).model_call_capture_dir == tmp_path
    assert ModelCallCaptureConfig.from_global_config({}).observability_enabled is False


def test_a_folder_alone_does_not_switch_capture_on(tmp_path: Path):
    assert ModelCallCaptureConfig(model_call_capture_dir=tmp_path).open_store() is None


def test_capture_without_a_folder_is_refused_with_the_override_to_add():
    with pytest.raises(ValidationError, match=r"\+\+model_call_capture_dir="):
        ModelCallCaptureConfig(observability_enabled=True)


def test_a_relative_folder_is_refused():
    with pytest.raises(ValidationError, match="absolute path, got 'captures'"):
        ModelCallCaptureConfig(observability_enabled=True, model_call_capture_dir=Path("captures"))


def test_records_are_read_by_store_or_by_folder(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.append("1-0", ModelCallRecord(model_call_id="a"))
    for captures in (store, tmp_path, str(tmp_path)):
        assert [record.model_call_id for record in read_model_call_records(captures, "1-0")] == ["a"]
    assert read_model_call_records(store, "9-9") == []


def test_a_result_row_gets_the_capture_of_its_own_attempt(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.append("1-0", ModelCallRecord(model_call_id="first attempt"))
    store.append("1-0-a1", ModelCallRecord(model_call_id="second attempt"))
    row = {"_ng_task_index": 1, "_ng_rollout_index": 0, "_ng_attempt_index": 1, "reward": 1.0}
    merged = merge_model_call_capture_into_record(row, store)
    assert merged is row
    block = row["ng_model_call_capture"]
    assert isinstance(block, dict)
    assert block["rollout_id"] == "1-0-a1"
    assert [call["model_call_id"] for call in block["calls"]] == ["second attempt"]
    assert row["reward"] == 1.0


def test_a_row_that_names_no_rollout_is_left_alone(tmp_path: Path):
    assert merge_model_call_capture_into_record({"reward": 0.0}, tmp_path) == {"reward": 0.0}


def test_the_metrics_of_a_row_are_those_of_its_records(tmp_path: Path):
    records = [ModelCallRecord(latency_ms=5.0, response={"usage": {"input_tokens": 2, "output_tokens": 3}})]
    store = CaptureStore(tmp_path)
    store.append("1-0", records[0])
    row = merge_model_call_capture_into_record({}, store, "1-0")
    assert row["ng_model_call_capture"]["metrics"] == aggregate_model_call_metrics(records)
