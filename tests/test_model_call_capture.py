# SPDX-License-Identifier: Apache-2.0
"""The public names of model-call capture: settings, reading, and the block in a result row."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fastapi import FastAPI
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.base_responses_api_model import (
    CaptureStore,
    ModelCallCaptureConfig,
    _CaptureMiddleware,
    aggregate_model_call_metrics,
    clear_model_call_captures_for_rollouts,
    install_model_call_capture,
    make_capture_store,
    merge_model_call_capture_into_record,
    model_call_capture_dirs_from_config,
    read_available_model_call_records,
    read_model_call_records,
)
from nemo_gym.errors import ConfigError

MODEL_REF = {"type": "responses_api_models", "name": "policy_model"}
ROW = {"_ng_task_index": 1, "_ng_rollout_index": 0}


def exchange(model_call_id: str, response_id: str = "r", **fields: Any) -> dict[str, Any]:
    response = {"id": response_id, "usage": {"input_tokens": 2, "output_tokens": 3}}
    known = {"model_call_id": model_call_id, "model_ref": MODEL_REF, "dialect": "responses", "latency_ms": 5.0}
    return {**known, "request": {"input": "x"}, "response": response, **fields}


def codes(row: dict[str, Any]) -> list[str]:
    return [gap["code"] for gap in row["ng_model_call_capture"].get("gaps", [])]


# --- settings ---------------------------------------------------------------------------------------------------------


def test_capture_is_off_by_default_and_a_folder_alone_does_not_switch_it_on(tmp_path: Path):
    for config in (ModelCallCaptureConfig(), ModelCallCaptureConfig(model_call_capture_dir=tmp_path)):
        assert make_capture_store(config) is None
    assert model_call_capture_dirs_from_config({"model_call_capture_dir": str(tmp_path)}) == []


@pytest.mark.parametrize("wrap", [dict, OmegaConf.create])
def test_the_settings_are_read_from_the_whole_config(tmp_path: Path, wrap: Any):
    whole = wrap({"observability_enabled": True, "model_call_capture_dir": str(tmp_path), "policy_model": {"x": 1}})
    store = make_capture_store(ModelCallCaptureConfig.model_validate(whole))
    assert store is not None
    assert store.root == tmp_path
    assert model_call_capture_dirs_from_config(whole) == [tmp_path]


def test_the_folder_is_checked_only_when_capture_is_on():
    with pytest.raises(ValidationError, match=r"\+\+model_call_capture_dir="):
        ModelCallCaptureConfig(observability_enabled=True)
    with pytest.raises(ValidationError, match="absolute path, got 'captures'"):
        ModelCallCaptureConfig(observability_enabled=True, model_call_capture_dir=Path("captures"))
    assert ModelCallCaptureConfig(model_call_capture_dir=Path("captures")).observability_enabled is False


def test_a_folder_that_cannot_be_made_is_the_users_mistake(tmp_path: Path):
    (tmp_path / "file").touch()
    config = ModelCallCaptureConfig(observability_enabled=True, model_call_capture_dir=tmp_path / "file" / "below")
    with pytest.raises(ConfigError, match="hint: name a folder"):
        make_capture_store(config)


def test_capture_is_installed_outermost_and_knows_its_server(tmp_path: Path):
    app = FastAPI()
    config = ModelCallCaptureConfig(observability_enabled=True, model_call_capture_dir=tmp_path)
    install_model_call_capture(app, config, model_server_name="policy_model", global_config_dict={})
    outermost = app.user_middleware[0]
    assert outermost.cls is _CaptureMiddleware
    assert outermost.kwargs["model_ref"] == MODEL_REF
    assert outermost.kwargs["store"].root == tmp_path


# --- reading ----------------------------------------------------------------------------------------------------------


def test_records_are_read_in_the_order_of_their_lines(tmp_path: Path):
    store = CaptureStore(tmp_path)
    for name in ("b", "a"):
        store.record("1-0", exchange(name, started_at={"a": 1.0, "b": 2.0}[name]))
    assert [(one.call_index, one.model_call_id) for one in read_model_call_records(store, "1-0")] == [
        (0, "b"),
        (1, "a"),
    ]
    assert read_model_call_records(store, "9-9") == []
    metrics = aggregate_model_call_metrics(store, "1-0")
    assert (metrics["num_calls"], metrics["tokens_total"], metrics["latency_total_ms"]) == (2, 10, 10.0)


def test_lines_that_are_torn_or_of_no_known_shape_are_counted(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.record("1-0", exchange("a"))
    store.record("1-0", exchange("b", status_code="teapot"))
    with store.path_for("1-0").open("a") as file:
        file.write('{"torn\n')
    store.record("1-0", exchange("c"))
    records, bad = read_available_model_call_records(store, "1-0")
    assert ([(one.call_index, one.model_call_id) for one in records], bad) == ([(0, "a"), (3, "c")], 2)


def test_what_earlier_attempts_left_is_cleared_for_the_rows_named(tmp_path: Path):
    store = CaptureStore(tmp_path)
    for rollout_id in ("1-0", "2-0"):
        store.record(rollout_id, exchange("a"))
        store.mark_incomplete(rollout_id)
    clear_model_call_captures_for_rollouts([ROW, {"no": "identity"}], [tmp_path])
    assert (store.read("1-0"), store.is_incomplete("1-0")) == ([], False)
    assert (len(store.read("2-0")), store.is_incomplete("2-0")) == (1, True)


# --- the block in a row -----------------------------------------------------------------------------------------------


def test_a_result_row_gets_the_capture_of_its_own_attempt(tmp_path: Path):
    store = CaptureStore(tmp_path)
    store.record("1-0", exchange("first attempt"))
    store.record("1-0-a1", exchange("second attempt"))
    row: dict[str, Any] = {**ROW, "_ng_attempt_index": 1, "reward": 1.0}
    assert merge_model_call_capture_into_record(row, [tmp_path]) is row
    block = row["ng_model_call_capture"]
    assert set(block) == {"rollout_id", "metrics", "calls"}, "no gaps, no key"
    assert block["rollout_id"] == "1-0-a1"
    assert block["metrics"] == aggregate_model_call_metrics(store, "1-0-a1")
    (call,) = block["calls"]
    assert (call["model_call_id"], call["response_id"], call["tokens_in"]) == ("second attempt", "r", 2)
    assert call.keys().isdisjoint({"request", "response", "request_raw", "response_raw"})
    assert row["reward"] == 1.0


def test_requests_and_responses_come_along_if_asked_for(tmp_path: Path):
    CaptureStore(tmp_path).record("1-0", exchange("a", response_raw="data: x"))
    row = merge_model_call_capture_into_record(dict(ROW), [tmp_path], include_payloads=True)
    (call,) = row["ng_model_call_capture"]["calls"]
    assert (call["request"], call["response"]["id"], call["response_raw"]) == ({"input": "x"}, "r", "data: x")


def test_a_row_that_names_no_rollout_or_a_run_without_capture_is_left_alone(tmp_path: Path):
    assert merge_model_call_capture_into_record({"reward": 0.0}, [tmp_path]) == {"reward": 0.0}
    assert merge_model_call_capture_into_record(dict(ROW), []) == ROW


def test_what_is_missing_from_a_capture_is_a_gap(tmp_path: Path):
    store = CaptureStore(tmp_path)
    row = merge_model_call_capture_into_record(dict(ROW), [tmp_path])
    assert row["ng_model_call_capture"]["gaps"] == [{"code": "model_call_capture_no_records"}]
    store.path_for("1-0").write_text('{"torn\n{"torn\n')
    store.mark_incomplete("1-0")
    row = merge_model_call_capture_into_record(dict(ROW), [tmp_path])
    assert row["ng_model_call_capture"]["gaps"] == [
        {"code": "model_call_capture_incomplete"},
        {"code": "model_call_capture_records_unreadable", "detail": "count=2"},
    ]
    store.mark_incomplete("1-0", "write_failed: disk full")
    row = merge_model_call_capture_into_record(dict(ROW), [tmp_path])
    assert row["ng_model_call_capture"]["gaps"][0]["detail"] == "write_failed: disk full"
    store.path_for("1-0").unlink()
    store.path_for("1-0").mkdir()
    row = merge_model_call_capture_into_record(dict(ROW), [tmp_path])
    assert codes(row) == ["model_call_capture_unreadable"]
    assert row["ng_model_call_capture"]["calls"] == []


def observed(source: str = "x", **fields: Any) -> dict[str, Any]:
    refs = [{"model_ref": MODEL_REF, "response_id": "r"}]
    invocation = {"kind": "agent_invocation", "invocation_id": "main", "model_calls": refs}
    return {**ROW, "ng_agent_observations": {"source": source, "records": [invocation], **fields}}


def test_the_observations_of_a_row_are_joined_with_its_calls(tmp_path: Path):
    CaptureStore(tmp_path).record("1-0", exchange("a"))
    row = merge_model_call_capture_into_record(observed(), [tmp_path])
    (invocation,) = row["ng_agent_observations"]["records"]
    assert invocation["model_calls"] == [{"model_call_id": "a", "model_ref": MODEL_REF, "response_id": "r"}]
    assert row["ng_agent_observations"]["gaps"] == []


@pytest.mark.parametrize("given", ["text", [], {"source": 1}, {"source": "x", "records": [{"kind": "?"}]}])
def test_observations_that_are_none_are_a_gap_and_stay_as_they_are(tmp_path: Path, given: Any):
    CaptureStore(tmp_path).record("1-0", exchange("a"))
    row = merge_model_call_capture_into_record({**ROW, "ng_agent_observations": given}, [tmp_path])
    assert codes(row) == ["agent_observation_join_failed"]
    assert row["ng_agent_observations"] == given
    assert len(row["ng_model_call_capture"]["calls"]) == 1


CLAUDE_CODE = "responses_api_agents.claude_code_agent.observability"


@pytest.fixture
def claude_code(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(CLAUDE_CODE)
    monkeypatch.setitem(sys.modules, "responses_api_agents.claude_code_agent", ModuleType("claude_code_agent"))
    monkeypatch.setitem(sys.modules, CLAUDE_CODE, module)
    return module


def test_claude_codes_own_agent_says_which_calls_wrote_its_summaries(tmp_path: Path, claude_code: Any):
    def associate(bundle: Any, calls: Any) -> Any:
        records = [{"kind": "context_compaction", "invocation_id": "main", "summary": calls[0].model_call_id}]
        return type(bundle).model_validate({"source": bundle.source, "records": records})

    claude_code.associate_claude_code_compaction_calls = associate
    CaptureStore(tmp_path).record("1-0", exchange("a"))
    row = merge_model_call_capture_into_record(observed("claude_code"), [tmp_path])
    assert row["ng_agent_observations"]["records"][0]["summary"] == "a"
    other = merge_model_call_capture_into_record(observed("codex"), [tmp_path])
    assert other["ng_agent_observations"]["records"][0]["kind"] == "agent_invocation"


def test_its_failure_costs_the_compactions_only(tmp_path: Path, claude_code: Any):
    CaptureStore(tmp_path).record("1-0", exchange("a"))  # the stand-in has no such function
    row = merge_model_call_capture_into_record(observed("claude_code"), [tmp_path])
    assert [gap["code"] for gap in row["ng_agent_observations"]["gaps"]] == ["compaction_model_call_join_failed"]
    assert row["ng_agent_observations"]["records"][0]["model_calls"][0]["model_call_id"] == "a"
    assert codes(row) == []
