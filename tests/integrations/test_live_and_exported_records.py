# SPDX-License-Identifier: Apache-2.0
"""A trainer gets the same record of a rollout from its live integration and from an export of the row.

Left out is only what one of both cannot know: how long the engine took, what the trainer itself handed in, and the
facts about a rollout and its group that no field of the library holds.
"""

import pytest

from nemo_gym._training.export import FORMATS
from nemo_gym._training.formats.sample import GroupSamples, Sample
from nemo_gym._training.handover import hand_over
from nemo_gym._training.record import TrainableRollout
from nemo_gym.integrations import art, openrlhf, trl, verl
from nemo_gym.integrations.live import PlayedRollout
from tests.integrations.test_art import Trajectory, fake_art  # noqa: F401  # a fixture
from tests.training.rollout_rows import ANSWER, CALL, OUTPUT, PROMPT, make_row, tokens


def make_consecutive_turns():
    """The model writes three times, and nobody says anything between the first two."""
    row = make_row()
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]}
    after = {"type": "message", "role": "user", "content": "And?"}
    row["response"]["output"] = [
        {**text, "id": "a", **tokens(PROMPT, CALL)},
        {**text, "id": "b", **tokens(PROMPT + CALL, OUTPUT)},
        after,
        {**text, "id": "c", **tokens([*PROMPT, *CALL, *OUTPUT, 0], ANSWER)},
    ]
    return row


def make_realigned_turns():
    """The second turn read the first one's text as one token, and the ids were put back."""
    row = make_row(history=[*PROMPT, 45, *OUTPUT])
    hand_over(row, lambda ids: "".join(map(str, ids)))
    assert row["_ng_token_drift"]["class"] == "realigned"
    return row


def make_captured_turns():
    """The tokens stand beside the response, so that no message carries them."""
    row = make_row(with_tokens=False)
    records = [tokens(PROMPT, CALL), tokens(PROMPT + CALL + OUTPUT, ANSWER)]
    return {**row, "_ng_token_capture": {"records": records}}


ROWS = {
    "clean": make_row(),
    "consecutive": make_consecutive_turns(),
    "realigned": make_realigned_turns(),
    "forked": make_row(history=[1, 2, 99]),
    "cut off": make_row(_ng_cut_off="length"),
    "captured": make_captured_turns(),
}


def export(name, row):
    """What `gym export` writes of one rollout; of a forked one, the record of the branch that ends with the answer."""
    rollout = TrainableRollout.from_row(row)
    sample = Sample.of(rollout, row)
    one = FORMATS[name]
    if one.build is None:
        [record] = one.build_group(GroupSamples([sample], ()))
        return record
    return [*one.build(sample)][rollout.branches.index(rollout.main_branch)]


def play(row):
    return PlayedRollout(TrainableRollout.from_row(row), row)


def drop(record, *names):
    return {name: value for name, value in record.items() if name not in names}


@pytest.mark.parametrize("kind", ROWS)
def test_trl_gets_the_same_tokens(kind):
    live = trl.make_entries([TrainableRollout.from_row(ROWS[kind])], filler_id=0)
    record = export("trl", ROWS[kind])
    for name in drop(live, trl.REWARD_KEY, trl.FAILURE_KEY, trl.DRIFT_KEY):
        assert live[name] == [record[name]]
    assert (live[trl.REWARD_KEY], live[trl.DRIFT_KEY]) == ([record["reward"]], [record["drift"]])


@pytest.mark.parametrize("kind", ROWS)
def test_verl_gets_the_same_output(kind):
    live = verl.build_output(play(ROWS[kind]), verl.VerlEngine(None, {}))
    assert drop(live, "metrics", "extra_fields") == drop(export("verl", ROWS[kind]), "metrics", "extra_fields")


@pytest.mark.parametrize("kind", ROWS)
def test_openrlhf_gets_the_same_response(kind):
    live = openrlhf.build_response(play(ROWS[kind]), with_log_probs=True)
    record = export("openrlhf", ROWS[kind])
    assert drop(live, "extra_logs") == {name: record[name] for name in drop(live, "extra_logs")}


@pytest.mark.parametrize("kind", ROWS)
def test_art_gets_the_same_trajectory(kind):
    from openai.types.chat.chat_completion import Choice

    def restore(items):
        return [Choice.model_validate(item) if "finish_reason" in item else item for item in items]

    [exported] = export("art", ROWS[kind])["trajectories"]
    exported["messages_and_choices"] = restore(exported["messages_and_choices"])
    for history in exported["additional_histories"]:
        history["messages_and_choices"] = restore(history["messages_and_choices"])
    assert art.build_trajectory(ROWS[kind]) == Trajectory.model_validate(exported)


def test_a_turn_of_openrlhf_is_a_range_of_its_own():
    """OpenRLHF's own executor appends a range for every reply of the engine, whether or not anything was said since."""
    ranges = export("openrlhf", ROWS["consecutive"])["action_ranges"]
    assert ranges == [(3, 5), (5, 6), (7, 10)]
    assert openrlhf.build_response(play(ROWS["consecutive"]), with_log_probs=True)["action_ranges"] == ranges


def test_the_last_reply_of_a_rollout_that_was_cut_off_did_not_stop():
    """ART takes the end of a reply for the model's own unless its finish reason is `length`."""
    [exported] = export("art", ROWS["cut off"])["trajectories"]
    reasons = [item["finish_reason"] for item in exported["messages_and_choices"] if "finish_reason" in item]
    assert reasons == ["tool_calls", "length"]


def test_prompts_of_art_extend_all_tokens_before_them():
    """ART refuses a history that is not append-only, so a retokenized one carries the ids that were put back."""
    made = art.build_trajectory(ROWS["realigned"])
    choices = [item for item in made.messages_and_choices if not isinstance(item, dict)]
    assert [choice.prompt_token_ids for choice in choices] == [PROMPT, PROMPT + CALL + OUTPUT]
