# SPDX-License-Identifier: Apache-2.0
"""Token-id capture: settings, the file store, stores of one's own, and what a result row gets."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym._capture.payloads import token_bundles
from nemo_gym.errors import ConfigError
from nemo_gym.token_id_capture import (
    FileTokenStore,
    FrozenTokens,
    MaskFractionGuard,
    TokenIdCaptureConfig,
    TokenSink,
    TokenSource,
    TooManyMaskedSamples,
    merge_token_capture_into_record,
    open_token_sink,
    open_token_source,
)


class MemoryStore:
    """A store of a user's own, found by its `module:Class`."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def put(self, rollout_id: str, record: dict[str, Any]) -> None: ...

    def mark_incomplete(self, rollout_id: str, reason: str) -> None: ...

    def close(self) -> None: ...


def tokens(start: int) -> dict[str, Any]:
    return {"prompt_token_ids": [start], "generation_token_ids": [start + 1], "generation_log_probs": [-0.1]}


def test_capture_is_off_by_default_and_opens_nothing():
    config = TokenIdCaptureConfig.from_global_config({"policy_model": {}})
    assert (open_token_sink(config), open_token_source(config)) == (None, None)


def test_the_block_has_the_documented_defaults(tmp_path: Path):
    config = TokenIdCaptureConfig.from_global_config({"token_id_capture": {"enabled": True, "dir": str(tmp_path)}})
    assert (config.all_agents, config.sink, config.sink_kwargs) == (False, None, {})
    assert (config.rebuild_response, config.max_mask_fraction, config.mask_fraction_min_samples) == (True, None, 50)


def test_a_misspelt_setting_is_refused():
    with pytest.raises(ValidationError, match="enabeld"):
        TokenIdCaptureConfig.from_global_config({"token_id_capture": {"enabeld": True}})


def test_capture_needs_somewhere_to_write():
    with pytest.raises(ValidationError, match="neither `dir` nor `sink`"):
        TokenIdCaptureConfig(enabled=True)
    with pytest.raises(ValidationError, match="absolute path"):
        TokenIdCaptureConfig(enabled=True, dir=Path("tokens"))


def test_the_file_store_is_both_ends(tmp_path: Path):
    config = TokenIdCaptureConfig(enabled=True, dir=tmp_path)
    sink, source = open_token_sink(config), open_token_source(config)
    assert isinstance(sink, TokenSink)
    assert isinstance(source, TokenSource)
    sink.put("1-0", {"model_call_id": "a", **tokens(1)})
    assert (tmp_path / "1-0.tokens.jsonl").exists()
    frozen = source.freeze("1-0")
    assert (frozen.records, frozen.complete) == ([{"model_call_id": "a", **tokens(1)}], True)


def test_tokens_that_come_after_the_freeze_are_refused_and_noted(tmp_path: Path):
    store = FileTokenStore(tmp_path)
    store.put("1-0", tokens(1))
    before = store.freeze("1-0").records
    store.put("1-0", tokens(2))
    again = store.freeze("1-0")
    assert again.records == before
    assert "after the rollout was frozen" in again.incomplete_reasons[0]


def test_a_rollout_without_tokens_is_not_complete(tmp_path: Path):
    assert not FileTokenStore(tmp_path).freeze("1-0").complete


def test_a_torn_line_makes_the_rollout_incomplete(tmp_path: Path):
    store = FileTokenStore(tmp_path)
    store.put("1-0", tokens(1))
    with (tmp_path / "1-0.tokens.jsonl").open("ab") as file:
        file.write(b'{"prompt_tok')
    frozen = store.freeze("1-0")
    assert (len(frozen.records), frozen.complete) == (1, False)


def test_dropping_deletes_the_tokens(tmp_path: Path):
    store = FileTokenStore(tmp_path)
    store.put("1-0", tokens(1))
    store.mark_incomplete("1-0", "lost one")
    store.freeze("1-0")
    store.drop("1-0")
    assert store.freeze("1-0").records == []
    assert not (tmp_path / "1-0.tokens.jsonl").exists()


def test_a_store_of_ones_own_is_loaded_by_name_with_its_arguments():
    sink = open_token_sink(
        TokenIdCaptureConfig(enabled=True, sink=f"{__name__}:MemoryStore", sink_kwargs={"name": "mine"})
    )
    assert type(sink).__name__ == "MemoryStore"
    assert getattr(sink, "name", None) == "mine"


def test_the_block_is_read_from_an_omegaconf_config(tmp_path: Path):
    config = OmegaConf.create({"where": str(tmp_path), "token_id_capture": {"enabled": True, "dir": "${where}"}})
    assert TokenIdCaptureConfig.from_global_config(config).dir == tmp_path


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("no_colon", "module.path:ClassName"),
        ("no.such.module:X", "cannot be loaded"),
        ("json:Nope", "cannot be loaded"),
    ],
)
def test_a_store_that_cannot_be_loaded_is_named(sink: str, message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        open_token_sink(TokenIdCaptureConfig(enabled=True, sink=sink))
    assert repr(sink) in str(caught.value)


def test_a_store_without_the_methods_of_a_source_is_refused_as_one():
    with pytest.raises(ConfigError, match="freeze, drop, close"):
        open_token_source(TokenIdCaptureConfig(enabled=True, sink=f"{__name__}:MemoryStore"))


def two_turn_output() -> list[dict[str, Any]]:
    return [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "4"},
        {"type": "message", "id": "msg_2", "content": [{"type": "output_text", "text": "four"}]},
    ]


def captured(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        bundle for start, item in enumerate(items) for bundle in token_bundles({"output": [{**item, **tokens(start)}]})
    ]


def test_tokens_are_put_back_on_the_items_that_the_model_generated():
    output = two_turn_output()
    row = {"reward": 1.0, "response": {"output": output}}
    merge_token_capture_into_record(row, FrozenTokens("1-0", captured(output[1], output[3])))
    assert row["mask_sample"] is False
    assert output[1]["generation_token_ids"] == [1]
    assert output[3]["generation_token_ids"] == [2]
    assert "generation_token_ids" not in output[0]
    assert "generation_token_ids" not in output[2]


def test_a_rollout_whose_answer_is_not_what_was_captured_is_masked():
    captured_text = {"type": "message", "content": [{"type": "output_text", "text": "five"}]}
    row = {"response": {"output": two_turn_output()}}
    merge_token_capture_into_record(row, FrozenTokens("1-0", captured(captured_text)))
    assert row["mask_sample"] is True
    assert not any("generation_token_ids" in item for item in row["response"]["output"])


def test_an_incomplete_rollout_is_masked_and_says_why():
    output = two_turn_output()
    row: dict[str, Any] = {"response": {"output": output}}
    merge_token_capture_into_record(row, FrozenTokens("1-0", captured(output[3]), ["call mc_1: cancelled"]))
    assert row["mask_sample"] is True
    assert row["_ng_token_capture"]["incomplete_reasons"] == ["call mc_1: cancelled"]


def test_without_rebuilding_the_response_stays_as_it_was():
    row: dict[str, Any] = {"response": {"output": two_turn_output()}}
    merge_token_capture_into_record(row, FrozenTokens("1-0", captured(two_turn_output()[3])), rebuild_response=False)
    assert row["mask_sample"] is False
    assert row["response"]["output"] == two_turn_output()


def test_the_guard_stops_a_run_that_loses_too_many_samples():
    guard = MaskFractionGuard(TokenIdCaptureConfig(max_mask_fraction=0.5, mask_fraction_min_samples=4))
    for masked in (True, True, True):
        guard.observe(masked)
    with pytest.raises(TooManyMaskedSamples, match="4 of 4 rollouts"):
        guard.observe(True)


def test_the_guard_lets_a_run_go_on_up_to_the_limit():
    guard = MaskFractionGuard(TokenIdCaptureConfig(max_mask_fraction=0.5, mask_fraction_min_samples=2))
    for masked in (False, True, False, True):
        guard.observe(masked)
    assert (guard.samples, guard.masked) == (4, 2)


def test_the_guard_is_off_without_a_limit():
    guard = MaskFractionGuard(TokenIdCaptureConfig())
    for _ in range(100):
        guard.observe(True)
