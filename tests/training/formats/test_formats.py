# SPDX-License-Identifier: Apache-2.0
"""Every format is a view of the same record: what a trainer reads out of it are the same tokens, masks and rewards."""

import orjson
import pytest
from hypothesis import given, strategies as st

from nemo_gym._training.export import FORMATS
from nemo_gym._training.formats.sample import GroupSamples, Sample
from nemo_gym._training.record import TrainableRollout
from tests.training.rollout_rows import ANSWER, CALL, OUTPUT, PROMPT, make_failure, make_row, tokens


def read_trl(record):
    yield record["prompt_ids"], record["completion_ids"], record["env_mask"], record["logprobs"]


def read_verl(record):
    yield record["prompt_ids"], record["response_ids"], record["response_mask"], record["response_logprobs"]


def read_openrlhf(record):
    start = record["action_ranges"][0][0]
    mask = [0] * len(record["observation_tokens"])
    for low, high in record["action_ranges"]:
        mask[low:high] = [1] * (high - low)
    ids, log_probs = record["observation_tokens"], record["rollout_log_probs"]
    yield ids[:start], ids[start:], mask[start:], log_probs[start:]


def read_trajectories(record):
    for branch in record["branches"]:
        yield branch["prompt_ids"], branch["completion_ids"], branch["mask"], branch["log_probs"]


def read_skyrl(record):
    yield from zip(
        *(record[name] for name in ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs")), strict=True
    )


def read_atropos(record):
    for ids, labels, log_probs in zip(record["tokens"], record["masks"], record["inference_logprobs"], strict=True):
        assert all(label in (-100, one) for label, one in zip(labels, ids, strict=True))
        assert all((label == -100) == (log_prob == 1.0) for label, log_prob in zip(labels, log_probs, strict=True))
        start = next(place for place, label in enumerate(labels) if label != -100)
        mask = [int(label != -100) for label in labels[start:]]
        known = [log_prob if wrote else 0.0 for log_prob, wrote in zip(log_probs[start:], mask, strict=True)]
        yield ids[:start], ids[start:], mask, known


def walk(parts):
    """As NeMo RL does: all tokens so far are a prefix of the next prompt."""
    ids, mask, log_probs, start = [], [], [], None
    for prompt_ids, generated_ids, generated_log_probs in parts:
        assert prompt_ids[: len(ids)] == ids
        start = len(prompt_ids) if start is None else start
        context = len(prompt_ids) - len(ids)
        ids = prompt_ids + generated_ids
        mask += [0] * context + [1] * len(generated_ids)
        log_probs += [0.0] * context + generated_log_probs
    yield ids[:start], ids[start:], mask[start:], log_probs[start:]


def read_nemo_rl(record):
    names = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    items = [item for item in record["response"]["output"] if "generation_token_ids" in item]
    yield from walk([tuple(item[name] for name in names) for item in items])


def read_art(record):
    names = ("prompt_token_ids", "token_ids", "compact_logprobs")
    for trajectory in record["trajectories"]:
        for history in (trajectory, *trajectory["additional_histories"]):
            choices = [one for one in history["messages_and_choices"] if "finish_reason" in one]
            yield from walk([tuple(choice[name] for name in names) for choice in choices])


def read_prime_rl(record):
    nodes = record["nodes"]
    parents = {node["parent"] for node in nodes}
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        path, at = [], leaf
        while at is not None:
            path.append(nodes[at])
            at = nodes[at]["parent"]
        ids, mask, log_probs = [], [], []
        for node in reversed(path):
            ids += node.get("token_ids", [])
            mask += node.get("mask", [])
            known = iter(node.get("logprobs", []))
            log_probs += [next(known) if wrote else 0.0 for wrote in node.get("mask", [])]
        start = mask.index(1)
        yield ids[:start], ids[start:], mask[start:], log_probs[start:]


READERS = {
    "trajectories": read_trajectories,
    "nemo-rl": read_nemo_rl,
    "trl": read_trl,
    "verl": read_verl,
    "openrlhf": read_openrlhf,
    "skyrl": read_skyrl,
    "art": read_art,
    "atropos": read_atropos,
    "prime-rl": read_prime_rl,
}


def build(name, *rows, failures=()):
    """The records as they are written and read back."""
    samples = [Sample(TrainableRollout.from_row(row), row) for row in rows]
    one = FORMATS[name]
    if one.build is not None:
        records = [record for sample in samples for record in one.build(sample)]
    else:
        records = [*one.build_group(GroupSamples(samples, failures))]
    return orjson.loads(orjson.dumps(records))


def row_of_turns(turns):
    texts = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "…"}]} for _ in turns]
    output = [{**text, **tokens(*turn)} for text, turn in zip(texts, turns, strict=True)]
    return {**make_row(), "response": {"model": "policy", "output": output}}


def test_every_format_of_tokens_has_a_reader():
    assert set(READERS) == {name for name, one in FORMATS.items() if one.needs_tokens}


ids = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@pytest.mark.parametrize("name", READERS)
@given(turns=st.lists(st.tuples(ids, ids, st.booleans()), min_size=1, max_size=4))
def test_what_a_trainer_reads_are_the_branches_of_the_record(name, turns):
    history, parts = [], []
    for said, generated, continues in turns:
        history = [*history, *said] if continues else said
        parts.append((history, generated))
        history = history + generated
    row = row_of_turns(parts)
    branches = TrainableRollout.from_row(row).branches
    expected = sorted((one.prompt_ids, one.completion_ids, one.mask, one.log_probs) for one in branches)
    found = [sample for record in build(name, row) for sample in READERS[name](record)]
    # Where the first prompt ends and the rest begins is not said by all; a mask begins with the first written token.
    assert sorted(map(tuple, found)) == expected


@pytest.mark.parametrize("name", READERS)
def test_the_usual_rollout_is_one_sequence(name):
    [record] = build(name, make_row())
    mask, log_probs = [1, 1, 0, 1, 1, 1], [-0.5, -0.5, 0.0, -0.5, -0.5, -0.5]
    assert [*map(tuple, READERS[name](record))] == [(PROMPT, CALL + OUTPUT + ANSWER, mask, log_probs)]


def test_steps_of_skyrl_end_with_the_branch_that_has_the_answer():
    [record] = build("skyrl", make_row(0, 0, 1.0, history=[1, 2, 99]), make_row(0, 1, 0.0))
    assert record["is_last_step"] == [False, True, True]
    assert record["rewards"] == [1.0, 1.0, 0.0]
    assert [one["repetition_id"] for one in record["trajectory_ids"]] == [0, 0, 1]
    assert {one["instance_id"] for one in record["trajectory_ids"]} == {"player/0"}


WEIGHTS = {
    "trl": lambda record: [record["weight"]],
    "openrlhf": lambda record: [record["weight"]],
    "nemo-rl": lambda record: [record["_ng_export"]["weight"]],
    "verl": lambda record: [record["extra_fields"]["weight"]],
    "skyrl": lambda record: [one["weight"] for one in record["env_metrics"]],
    "atropos": lambda record: [one["weight"] for one in record["overrides"]],
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_records_of_a_forked_rollout_weigh_as_much_as_one_rollout(name):
    forked = [weight for record in build(name, make_row(history=[1, 2, 99])) for weight in WEIGHTS[name](record)]
    assert forked == [0.5, 0.5]
    whole = [weight for record in build(name, make_row()) for weight in WEIGHTS[name](record)]
    assert whole == [1.0]


def test_a_forked_rollout_is_one_trajectory_of_art_with_a_history_for_each_branch():
    [record] = build("art", make_row(history=[1, 2, 99]), make_row(0, 1, 0.0))
    assert [len(one["additional_histories"]) for one in record["trajectories"]] == [1, 0]
    assert [one["reward"] for one in record["trajectories"]] == [1.0, 0.0]


def test_failures_are_exceptions_of_the_group_and_never_trajectories():
    [record] = build("art", make_row(), failures=[make_failure()])
    assert len(record["trajectories"]) == 1
    assert record["exceptions"] == [{"type": "timeout", "message": "it took too long", "traceback": ""}]


def test_an_item_of_another_branch_keeps_its_text_and_loses_its_tokens():
    first, second = build("nemo-rl", make_row(0, 0, 1.0, history=[1, 2, 99]))
    assert ["generation_token_ids" in item for item in first["response"]["output"]] == [False, True, False, False]
    assert ["generation_token_ids" in item for item in second["response"]["output"]] == [False, False, False, True]
    assert first["reward"] == second["reward"] == 1.0


def test_steps_of_atif_hold_calls_and_what_came_of_them():
    [record] = build("atif", make_row())
    assert [step["source"] for step in record["steps"]] == ["system", "user", "agent", "agent"]
    step = record["steps"][2]
    assert step["tool_calls"] == [
        {"tool_call_id": "call_1", "function_name": "get_weather", "arguments": {"city": "Bern"}}
    ]
    assert step["observation"]["results"] == [{"source_call_id": "call_1", "content": '{"celsius": 21}'}]
    assert step["metrics"]["completion_token_ids"] == CALL
    assert step["reasoning_content"] == "Let me look."


def test_pictures_are_parts_of_a_message_of_atif():
    row = make_row()
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    row["responses_create_params"]["input"][1]["content"] = [{"type": "input_text", "text": "What?"}, picture]
    [record] = build("atif", row)
    assert record["steps"][1]["message"][1]["source"]["media_type"] == "image/png"


def test_a_conversation_for_supervised_training_is_the_whole_of_it():
    [record] = build("sft", make_row())
    assert [message["role"] for message in record["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert record["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"city": "Bern"}
    assert record["tools"][0]["function"]["name"] == "get_weather"
