# SPDX-License-Identifier: Apache-2.0
"""A row becomes a trainable rollout: tokens from where they are, a reason where not, and never a zero for a failure."""

import json
import re

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._training.record import TrainableRollout, TrainableRolloutError


def item(prompt_ids, generated_ids, **fields):
    tokens = {
        "prompt_token_ids": prompt_ids,
        "generation_token_ids": generated_ids,
        "generation_log_probs": [-0.5] * len(generated_ids),
    }
    return {"type": "message", "role": "assistant", "id": "msg_1", "content": [], **tokens, **fields}


def row(*output, **fields):
    return {
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "agent_ref": {"type": "responses_api_agents", "name": "player"},
        "reward": 0.5,
        "response": {"model": "m", "output": list(output)},
        **fields,
    }


def test_the_items_of_the_response_are_its_turns():
    said = {"type": "function_call_output", "call_id": "c", "output": "5"}
    rollout = TrainableRollout.from_row(row(item([1], [2]), said, item([1, 2, 3], [4])))
    assert rollout.is_valid
    assert (rollout.reward, rollout.group, rollout.drift) == (0.5, ("player", 3), "clean")
    assert rollout.main_branch.completion_ids == [2, 3, 4]
    assert {turn.source for turn in rollout.turns} == {"response"}


def test_captured_tokens_come_first_because_they_know_every_call():
    entry = {"model_call_id": "call_7", "model": "captured", **item([9], [8])}
    rollout = TrainableRollout.from_row(row(item([1], [2]), _ng_token_capture={"records": [entry]}))
    [turn] = rollout.turns
    assert (turn.source, turn.model, turn.call_id, turn.generated_ids) == ("token_capture", "captured", "call_7", [8])


def test_captured_model_calls_serve_where_the_response_has_no_tokens():
    call = {"model_call_id": "call_1", "response": {"model": "m", "output": [item([1], [2])]}}
    rollout = TrainableRollout.from_row(row(ng_trajectory={"model_calls": [call]}))
    assert [(turn.source, turn.call_id) for turn in rollout.turns] == [("model_call_capture", "call_1")]


def test_chat_completions_are_read_as_responses_are():
    choices = [{"message": item([1], [2])}, {"message": item([1, 2], [3])}]
    rollout = TrainableRollout.from_row({"response": {"model": "m", "choices": choices}, "reward": 1.0})
    assert rollout.main_branch.completion_ids == [2, 3]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"_ng_failure": {"kind": "timeout", "message": "…"}}, "timeout"),
        ({"_ng_failure_class": "judge_error", "reward": 0.0}, "judge_error"),
        ({"reward": None}, "no_reward"),
    ],
)
def test_a_failed_rollout_has_a_kind_and_no_reward(fields, kind):
    rollout = TrainableRollout.from_row(row(item([1], [2]), **fields))
    assert (rollout.failure, rollout.reward, rollout.is_valid) == (kind, None, False)


def test_a_masked_row_keeps_its_reward_but_is_not_valid():
    capture = {"records": [], "incomplete_reasons": ["sink full"]}
    rollout = TrainableRollout.from_row(row(item([1], [2]), mask_sample=True, _ng_token_capture=capture))
    assert (rollout.reward, rollout.invalid, rollout.is_valid) == (0.5, "mask_sample: sink full", False)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (item([1], [2], generation_log_probs=None), "turn 0 has only some of its tokens"),
        (item([1], [2, 3], generation_log_probs=[-0.5]), "turn 0 has 2 tokens, but 1 log-probs"),
        (item([1], ["token_id:2"]), "turn 0 has token ids that are not whole numbers"),
        (item([1], [2], generation_log_probs=[None]), "turn 0 has log-probs that are not numbers"),
        (item([1], [True]), "turn 0 has token ids that are not whole numbers"),
        (item([1, -1], [2]), "turn 0 has a negative token id, -1"),
        (item([1], [-100]), "turn 0 has a negative token id, -100"),
        (item([1], [2], generation_log_probs=[0.25]), "turn 0 has a positive log-prob, 0.25"),
        (item([1], [2], generation_log_probs=[True]), "turn 0 has log-probs that are not numbers"),
    ],
)
def test_tokens_that_do_not_fit_together_make_it_invalid(broken, reason):
    rollout = TrainableRollout.from_row(row(broken))
    assert (rollout.invalid, rollout.turns) == (reason, [])


def test_a_reward_component_that_is_no_number_is_left_out():
    rollout = TrainableRollout.from_row(row(item([1], [2]), reward_components={"format": 0.5, "why": "because"}))
    assert rollout.reward_components == {"format": 0.5}


def test_a_rollout_whose_turns_wrote_nothing_has_no_tokens():
    assert not TrainableRollout.from_row(row(item([1], []))).has_tokens
    assert TrainableRollout.from_row(row(item([1], [2]))).has_tokens


def test_versions_of_the_policy_are_those_of_the_first_and_last_turn():
    same = TrainableRollout.from_row(row(item([1], [2], policy_version=4)))
    across = TrainableRollout.from_row(row(item([1], [2], policy_version=4), item([1, 2], [3], policy_version=5)))
    assert (same.policy_versions, same.straddles_versions) == ((4, 4), False)
    assert (across.policy_versions, across.straddles_versions) == ((4, 5), True)
    assert TrainableRollout.from_row(row(item([1], [2]))).policy_versions == (None, None)


def test_what_was_stored_is_read_back():
    rollout = TrainableRollout.from_row(row(item([1], [2]), item([7], [3]), reward_components={"a": 0.5}))
    assert rollout.drift == "forked"
    assert TrainableRollout.from_json(rollout.to_json()) == rollout


@pytest.mark.parametrize("change", [{"schema": 99}, {"turns": None}, {"surprise": 1}])
def test_another_schema_is_refused(change):
    with pytest.raises(TrainableRolloutError, match="schema"):
        TrainableRollout.from_json({**TrainableRollout(0, 0).to_json(), **change})


def test_the_page_about_the_record_shows_a_real_one_and_names_every_field():
    page = (PARENT_DIR / "docs/concepts/trainable-rollouts.md").read_text()
    [shown] = re.findall(r"```json\n(.*?)```", page, re.S)
    record = json.loads(shown)
    rollout = TrainableRollout.from_json(record)
    assert rollout.to_json() == record
    assert rollout.is_valid
    assert rollout.straddles_versions
    turns = [item(turn.prompt_ids, turn.generated_ids, generation_log_probs=turn.log_probs) for turn in rollout.turns]
    assert TrainableRollout.from_row(row(*turns)).branches == rollout.branches
    table = page.partition("| field | what |")[2].partition("## Drift")[0]
    for name in [*record, *record["turns"][0], *record["branches"][0]]:
        assert re.search(rf"\b{name}\b", table), name
