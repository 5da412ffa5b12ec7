# SPDX-License-Identifier: Apache-2.0
"""Token ids are found in answers of every kind, and put into the result rows that they belong to."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from nemo_gym._training.handover import hand_over
from nemo_gym.token_id_capture import (
    MaskFractionGuard,
    TokenCaptureSnapshot,
    TokenEntry,
    TokenIdCaptureConfig,
    TooManyMaskedSamples,
    extract_token_fields,
    merge_token_capture_into_record,
)
from nemo_gym.token_id_capture.records import read_token_entries, rollout_carries_token_ids

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
MESSAGE = {"type": "message", "id": "m"}


def read(answer: Any) -> list[TokenEntry]:
    return read_token_entries(answer, "1-0", "mc_1")


def test_an_entry_holds_the_tokens_of_an_item_and_the_answer_without_them():
    answer = {"model": "small", "output": [{"type": "reasoning"}, {**MESSAGE, **TOKENS, "routed_experts": "abc"}]}
    (entry,) = read(answer)
    assert entry.created_at > 0
    assert entry.model_dump(exclude={"created_at"}) == {
        "schema_version": 1,
        "rollout_id": "1-0",
        "model_call_id": "mc_1",
        "model": "small",
        **TOKENS,
        "routed_experts": "abc",
        "output_items": [{"type": "reasoning"}, MESSAGE],
        "token_item_index": 1,
    }


def test_every_choice_of_a_chat_completion_has_an_entry():
    message = {"role": "assistant", "content": "hi"}
    first, second = read({"choices": [{"message": {**message, **TOKENS}}, {"message": {**message, **TOKENS}}]})
    assert (first.token_item_index, second.token_item_index) == (0, 1)
    assert first.output_items == second.output_items == [message, message]


@pytest.mark.parametrize("missing", TOKENS)
def test_tokens_that_lack_a_field_are_none(missing: str):
    some = {name: value for name, value in TOKENS.items() if name != missing}
    assert read({"output": [{**MESSAGE, **some}]}) == []
    assert extract_token_fields(some) is None


@pytest.mark.parametrize("holder", [TOKENS, {"output": [MESSAGE, TOKENS]}, {"choices": [{"message": TOKENS}]}])
def test_the_token_fields_of_an_item_or_of_an_answer_are_extracted(holder: dict[str, Any]):
    assert extract_token_fields(holder) == TOKENS
    assert extract_token_fields({**MESSAGE, "output": "x"}) is None


def test_ids_and_log_probs_of_different_length_are_refused():
    with pytest.raises(ValidationError, match="holds 1 tokens, but generation_log_probs 2"):
        read({"output": [{**TOKENS, "generation_log_probs": [-0.5, -0.5]}]})


def test_an_entry_of_a_newer_version_is_refused_and_further_fields_are_kept():
    with pytest.raises(ValidationError, match="schema version 2"):
        TokenEntry(schema_version=2, rollout_id="1-0", model_call_id="mc_1", **TOKENS)
    entry = TokenEntry(rollout_id="1-0", model_call_id="mc_1", **TOKENS, weights_version="7")
    assert entry.model_dump()["weights_version"] == "7"


json_values = st.recursive(
    st.none() | st.integers(-2, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["output", "choices", "message", "model", *TOKENS]), inner, max_size=5)
    ),
    max_leaves=10,
)


@settings(max_examples=30)
@given(body=json_values)
def test_no_shape_of_body_is_an_error_but_bad_arrays(body: Any):
    with contextlib.suppress(ValidationError):
        assert all(len(entry.generation_token_ids) == len(entry.generation_log_probs) for entry in read(body))


# --- in result rows ---------------------------------------------------------------------------------------------------


def tokens(start: int) -> dict[str, Any]:
    return {"prompt_token_ids": [start], "generation_token_ids": [start + 1], "generation_log_probs": [-0.1]}


def two_turn_output() -> list[dict[str, Any]]:
    return [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "4"},
        {"type": "message", "id": "msg_2", "content": [{"type": "output_text", "text": "four"}]},
    ]


def snapshot(*items: dict[str, Any], **fields: Any) -> TokenCaptureSnapshot:
    """One call for each of `items`."""
    entries = [
        entry
        for start, item in enumerate(items)
        for entry in read_token_entries({"output": [{**item, **tokens(start)}]}, "1-0", f"mc_{start}")
    ]
    return TokenCaptureSnapshot("1-0", entries, **fields)


def test_tokens_are_put_back_on_the_items_that_the_model_generated():
    output = two_turn_output()
    row = {"reward": 1.0, "response": {"output": output}}
    merge_token_capture_into_record(row, snapshot(output[1], output[3]))
    assert row["mask_sample"] is False
    assert output[1]["generation_token_ids"] == [1]
    assert output[3]["generation_token_ids"] == [2]
    assert "generation_token_ids" not in output[0]
    assert "generation_token_ids" not in output[2]


def test_the_row_says_how_many_of_its_tokens_the_output_holds():
    output = two_turn_output()
    row: dict[str, Any] = {"reward": 1.0, "response": {"output": output}}
    merge_token_capture_into_record(row, snapshot(output[1], output[3]))
    capture = row["_ng_token_capture"]
    assert (capture["n_calls"], capture["empty_generation_calls"]) == (2, 0)
    assert (capture["generated_tokens_captured"], capture["generated_tokens_delivered"]) == (2, 2)
    assert capture["delivered_fraction"] == 1.0
    # The tokens of the two calls do not extend each other: only the last call stays in the output.
    hand_over(row)
    assert (capture["generated_tokens_captured"], capture["generated_tokens_delivered"]) == (2, 1)
    assert capture["delivered_fraction"] == 0.5
    drift = row["_ng_token_drift"]
    assert (drift["class"], drift["generated_tokens"], drift["delivered_tokens"]) == ("forked", 2, 1)


def test_a_rollout_without_captured_tokens_delivers_none_of_them():
    row: dict[str, Any] = {"response": {"output": two_turn_output()}}
    merge_token_capture_into_record(row, snapshot())
    assert row["_ng_token_capture"]["delivered_fraction"] == 0.0


def test_a_rollout_whose_answer_is_not_what_was_captured_is_masked():
    captured_text = {"type": "message", "content": [{"type": "output_text", "text": "five"}]}
    row = {"response": {"output": two_turn_output()}}
    merge_token_capture_into_record(row, snapshot(captured_text))
    assert row["mask_sample"] is True
    assert not any("generation_token_ids" in item for item in row["response"]["output"])


def test_an_incomplete_rollout_is_masked_and_says_why():
    output = two_turn_output()
    row: dict[str, Any] = {"response": {"output": output}}
    merge_token_capture_into_record(
        row, snapshot(output[3], incomplete=True, incomplete_reasons=["call mc_1: cancelled"])
    )
    assert row["mask_sample"] is True
    assert row["_ng_token_capture"]["incomplete_reasons"] == ["call mc_1: cancelled"]


def test_a_rollout_that_its_source_calls_incomplete_is_masked():
    row: dict[str, Any] = {"response": {"output": two_turn_output()}}
    merge_token_capture_into_record(row, snapshot(two_turn_output()[3], incomplete=True))
    assert (row["mask_sample"], row["_ng_token_capture"]["incomplete_reasons"]) == (True, ["unknown"])


@pytest.mark.parametrize("place", [{}, {"output_items": [{"id": "msg_2"}], "token_item_index": 7}])
def test_an_entry_that_names_no_item_cannot_be_put_back(place: dict[str, Any]):
    entry = TokenEntry(rollout_id="1-0", model_call_id="mc_0", **tokens(1), **place)
    row: dict[str, Any] = {"response": {"output": two_turn_output()}}
    merge_token_capture_into_record(row, TokenCaptureSnapshot("1-0", [entry]))
    assert row["mask_sample"] is True


def test_without_rebuilding_the_response_stays_as_it_was():
    row: dict[str, Any] = {"response": {"output": two_turn_output()}}
    merge_token_capture_into_record(row, snapshot(two_turn_output()[3]), rebuild_response=False)
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


@pytest.mark.parametrize(
    ("result", "carries"),
    [
        ({"response": {"output": [MESSAGE, {**MESSAGE, **TOKENS}]}}, True),
        ({"response": {"output": [{**MESSAGE, "generation_token_ids": []}]}}, True),
        ({"response": {"output": [MESSAGE]}}, False),
        ({"response": {"output": None}}, False),
        ({}, False),
    ],
)
def test_a_result_carries_tokens_if_one_of_its_items_does(result, carries):
    assert rollout_carries_token_ids(result) is carries
