# SPDX-License-Identifier: Apache-2.0
"""Token ids are found in answers of every kind, and an entry holds only what belongs together."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from nemo_gym.token_id_capture import TokenEntry, extract_token_fields
from nemo_gym.token_id_capture.records import read_token_entries

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


@settings(max_examples=50)
@given(body=json_values)
def test_no_shape_of_body_is_an_error_but_bad_arrays(body: Any):
    with contextlib.suppress(ValidationError):
        assert all(len(entry.generation_token_ids) == len(entry.generation_log_probs) for entry in read(body))
