# SPDX-License-Identifier: Apache-2.0
"""What a trainer is handed satisfies its prefix rule, clean rows stay as they are, and nothing is lost."""

import copy

import pytest
from hypothesis import given, strategies as st

from nemo_gym._training.handover import carries_tokens, count_untracked_turns, hand_over, is_clean
from nemo_gym._training.record import TrainableRollout
from tests.support.nemo_rl import walk_as_nemo_rl_does
from tests.training.test_alignment import decode, spell_otherwise

SAID = {"type": "function_call_output", "call_id": "c", "output": "5"}


def item(prompt_ids, generated_ids, **fields):
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "…"}],
        "prompt_token_ids": list(prompt_ids),
        "generation_token_ids": list(generated_ids),
        "generation_log_probs": [-0.5] * len(generated_ids),
        **fields,
    }


def make_row(*output, **fields):
    return {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {"output": list(output)}, **fields}


def list_ids(row):
    """All tokens that NeMo RL makes of a row; AssertionError where they do not extend each other."""
    return [one for message in walk_as_nemo_rl_does(row) for one in message["token_ids"]]


def test_a_clean_row_is_not_touched():
    row = make_row(item([0], [1]), SAID, item([0, 1, 2], [3]))
    before = copy.deepcopy(row)
    hand_over(row)
    assert row == before


def test_a_row_without_tokens_has_nothing_to_hand_over():
    assert not carries_tokens({"reward": 1.0})
    assert not carries_tokens({"response": {"output": [SAID, {"type": "message", "role": "assistant"}]}})
    assert carries_tokens(make_row(SAID, item([0], [1])))


def test_a_history_that_was_tokenized_anew_gets_the_generated_ids_back():
    row = make_row(item([0], [11, 2]), SAID, item([0, 1, 1, 2, 3], [0]))
    hand_over(row, decode)
    assert list_ids(row) == [0, 11, 2, 3, 0]
    drift = row["_ng_token_drift"]
    assert (drift["class"], drift["realigned_turns"], drift["set_aside"]) == ("realigned", [1], [])
    assert drift["reread"] == [{"turn": 1, "start": 1, "stop": 3, "ids": [1, 1, 2]}]


def test_of_a_fork_the_last_turns_branch_stays_and_the_other_is_set_aside():
    row = make_row(item([0], [1, 2]), SAID, item([0, 3], [2], routed_experts="…"), SAID, item([0, 3, 2, 1], [0]))
    hand_over(row, decode)
    assert list_ids(row) == [0, 3, 2, 1, 0]
    drift = row["_ng_token_drift"]
    assert (drift["class"], drift["turns"], drift["branches"]) == ("forked", 3, 2)
    assert drift["untracked_turns"] == 0, "the endpoint has sent the tokens of all turns"
    assert (drift["generated_tokens"], drift["delivered_tokens"]) == (4, 2)
    assert drift["set_aside"] == [
        {"item": 0, "prompt_token_ids": [0], "generation_token_ids": [1, 2], "generation_log_probs": [-0.5, -0.5]}
    ]
    assert row["response"]["output"][0]["content"], "only the tokens are set aside"
    assert "mask_sample" not in row


def test_handing_over_twice_changes_nothing_more():
    row = make_row(item([0], [1, 2]), SAID, item([0, 3], [2]))
    hand_over(row, decode)
    once = copy.deepcopy(row)
    hand_over(row, decode)
    assert row == once


@pytest.mark.parametrize("lost", [{"generation_log_probs": None}, {"generation_log_probs": [-0.5, -0.5]}])
def test_an_item_with_half_of_its_tokens_masks_the_row_and_keeps_the_others_in_order(lost):
    row = make_row(item([0], [1]), SAID, item([0, 1, 2], [3], **lost), SAID, item([0, 1, 2, 3, 0], [1]))
    hand_over(row, decode)
    assert list_ids(row) == [0, 1, 2, 3, 0, 1]
    assert row["mask_sample"] is True
    assert "output item 2 has" in row["_ng_token_drift"]["problems"][0]
    assert row["_ng_token_drift"]["set_aside"][0]["generation_token_ids"] == [3]
    assert not TrainableRollout.from_row(row).is_valid


def test_a_turn_without_any_tokens_is_counted():
    bare = {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "c"}
    row = make_row(item([0], [1]), SAID, bare, SAID, item([0, 1, 2, 3, 0], [1]))
    assert not is_clean(row)
    hand_over(row, decode)
    assert list_ids(row) == [0, 1, 2, 3, 0, 1]
    assert (row["_ng_token_drift"]["class"], row["_ng_token_drift"]["untracked_turns"]) == ("clean", 1)


def test_an_empty_reply_has_no_tokens_to_lose():
    empty = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]}
    assert count_untracked_turns([item([0], [1]), SAID, empty]) == 0
    assert count_untracked_turns([empty, SAID, {"type": "reasoning", "summary": [{"text": "hm"}]}]) == 1


ids = st.lists(st.sampled_from([0, 1, 2, 3, 10, 11, 12, 13]), max_size=4)


@st.composite
def conversations(draw):
    """Turns of a conversation whose history is spelled otherwise, changed or forgotten on the way."""
    history, items = draw(ids), []
    for _ in range(draw(st.integers(1, 5))):
        prompt = draw(st.sampled_from([history, spell_otherwise(history), history[:-1], draw(ids)]))
        generated = draw(ids)
        items += [item(prompt, generated), SAID]
        history = draw(st.sampled_from([history, prompt])) + generated + draw(ids)
    return make_row(*items)


@given(conversations(), st.sampled_from([None, decode]))
def test_whatever_happens_to_a_history_the_row_is_trainable_or_says_why_and_nothing_is_lost(row, decode):
    raw = copy.deepcopy(row)
    hand_over(row, decode)
    list_ids(row)
    expected = TrainableRollout.from_row(raw, decode)
    assert TrainableRollout.from_row(row) == expected
    if "_ng_token_drift" not in row:
        assert (row, expected.drift) == (raw, "clean")
    else:
        assert row["_ng_token_drift"]["class"] == expected.drift
        trained = [one["generation_token_ids"] for one in row["response"]["output"] if "prompt_token_ids" in one]
        assert trained == [expected.turns[number].generated_ids for number in expected.main_branch.turns]


@given(conversations())
def test_what_was_handed_over_without_a_decoder_can_be_joined_better_later(row):
    expected = TrainableRollout.from_row(copy.deepcopy(row), decode)
    hand_over(row)
    assert TrainableRollout.from_row(row, decode) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def objects_with(names):
    return st.dictionaries(st.sampled_from(names), json_values, max_size=len(names))


ITEM_KEYS = ["type", "role", "content", "summary", "prompt_token_ids", "generation_token_ids", "generation_log_probs"]
MARK_KEYS = ["class", "turns", "branch_of_turn", "reread", "set_aside", "realigned_turns"]
MARK_ENTRIES = objects_with(["item", "turn", "start", "stop", "ids", "prompt_token_ids"])


@given(st.lists(objects_with(ITEM_KEYS) | json_values, max_size=4))
def test_no_response_of_anyones_agent_is_an_error(output):
    row = make_row(*output)
    hand_over(row, str)
    TrainableRollout.from_row(row)


@given(objects_with(MARK_KEYS), st.lists(MARK_ENTRIES, max_size=2), st.lists(MARK_ENTRIES, max_size=2))
def test_no_mark_of_anyones_is_an_error(mark, reread, set_aside):
    marks = [mark, {**mark, "reread": reread, "set_aside": set_aside}]
    for one in marks:
        TrainableRollout.from_row(make_row(item([0], [1]), SAID, item([0, 1, 2], [3]), _ng_token_drift=one))
