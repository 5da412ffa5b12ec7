# SPDX-License-Identifier: Apache-2.0
"""Formats with a record for every branch of a rollout, as token sequences: TRL, verl, OpenRLHF, NeMo RL.

This includes our own, with a record for every rollout. Field names are those of each library; facts it has no field for
are added beside them, as in `Sample.describe`.
"""

from collections.abc import Iterator
from typing import Any

from nemo_gym._training.alignment import Branch, find_turn
from nemo_gym._training.capture.call_records import list_answer_items
from nemo_gym._training.chat_messages import read_given
from nemo_gym._training.formats.sample import Record, Sample
from nemo_gym._training.record import TrainableRollout
from nemo_gym._util.json_shapes import as_mapping, as_text
from nemo_gym._util.row_keys import (
    OBSERVED_KEYS,
    RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    TOKEN_CAPTURE_KEY,
)
from nemo_gym._wire.schema.tokens import ALL_TOKEN_FIELDS


def build_trajectories(sample: Sample) -> Iterator[Record]:
    """Yield the canonical record."""
    yield sample.rollout.to_json()


def build_trl(sample: Sample) -> Iterator[Record]:
    """Yield what a `rollout_func` of TRL returns for one prompt."""
    prompt = read_given(sample.row, parse_arguments=True)
    for number, branch in sample.iter_branches():
        yield {
            "prompt": prompt,
            **build_trl_tokens(branch),
            "reward": sample.reward,
            "reward_components": sample.rollout.reward_components,
            **sample.describe(number),
        }


def build_trl_tokens(branch: Branch) -> Record:
    """Return the tokens of one entry of what a `rollout_func` returns."""
    return {
        "prompt_ids": branch.prompt_ids,
        "completion_ids": branch.completion_ids,
        "logprobs": branch.log_probs,
        "env_mask": branch.mask,
    }


def build_verl(sample: Sample) -> Iterator[Record]:
    """Yield the fields of verl's `AgentLoopOutput`."""
    for number, branch in sample.iter_branches():
        yield {
            **build_verl_output(sample.rollout, branch),
            # Its other metrics are times, which were not measured; -1 means that this one is not available.
            "metrics": {"num_preempted": -1},
            "extra_fields": {"reward_extra_info": sample.rollout.reward_components, **sample.describe(number)},
        }


def build_verl_output(rollout: TrainableRollout, branch: Branch) -> Record:
    """Return the fields of an `AgentLoopOutput`, save for its metrics and extra fields."""
    return {
        "prompt_ids": branch.prompt_ids,
        "response_ids": branch.completion_ids,
        "response_mask": branch.mask,
        "response_logprobs": branch.log_probs,
        "reward_score": rollout.reward,
        # verl counts what the model read and what it wrote as one turn each.
        "num_turns": 2 * len(branch.turns),
    }


def make_verl_schema() -> Any:
    """Return the columns of verl's format as parquet."""
    import pyarrow as pa  # type: ignore[import-untyped]

    text = pa.string()
    number = pa.int64()
    ids = pa.list_(pa.int64())
    facts = {
        # A map would fit, but the `datasets` library, with which verl reads parquet, has no maps.
        "reward_extra_info": pa.list_(pa.struct({"name": text, "value": pa.float64()})),
        **dict.fromkeys(("task_index", "rollout_index"), number),
        **dict.fromkeys(("agent", "rollout_id"), text),
        **dict.fromkeys(("group_size", "group_scored", "group_failed"), number),
        **dict.fromkeys(("cut_off", "drift"), text),
        **dict.fromkeys(("policy_version_start", "policy_version_end", "branch", "branches"), number),
        "weight": pa.float64(),
    }
    return pa.schema(
        {
            "prompt_ids": ids,
            "response_ids": ids,
            "response_mask": ids,
            "response_logprobs": pa.list_(pa.float64()),
            "reward_score": pa.float64(),
            "num_turns": number,
            "metrics": pa.struct({"num_preempted": number}),
            "extra_fields": pa.struct(facts),
        }
    )


def build_openrlhf(sample: Sample) -> Iterator[Record]:
    """Yield what `AgentExecutor.execute` of OpenRLHF returns."""
    rollout = sample.rollout
    asked = ""
    for message in read_given(sample.row):
        if message["role"] == "user":
            asked = as_text(message["content"]) or ""
    for number, branch in sample.iter_branches():
        yield {
            "prompt": asked,
            "label": None,
            **build_openrlhf_response(rollout, branch),
            # OpenRLHF makes a tensor of each of these, so they must be numbers.
            "extra_logs": {**rollout.reward_components, **rollout.group_facts},
            **sample.describe(number),
        }


def build_openrlhf_response(rollout: TrainableRollout, branch: Branch) -> Record:
    """Return what `AgentExecutor.execute` returns, save for what it was given and what it logs."""
    start = len(branch.prompt_ids)
    return {
        "observation_tokens": branch.ids,
        # One for every turn, as OpenRLHF's own executor does, even if nothing was said between two of them.
        "action_ranges": [(start + low, start + high) for low, high in branch.find_generated(rollout.turns)],
        "rollout_log_probs": [0.0] * start + branch.log_probs,
        "reward": rollout.reward,
        "scores": rollout.reward,
        "truncated": rollout.cut_off == "length",
    }


def build_nemo_rl(sample: Sample) -> Iterator[Record]:
    """Yield the row as NeMo RL reads results: each trained item's prompt begins with all tokens before it.

    An item of another branch keeps its text but loses its tokens.
    """
    row = sample.row
    rollout = sample.rollout
    kept = {key: value for key, value in row.items() if key not in _NOT_FOR_NEMO_RL}
    for number, branch in sample.iter_branches():
        output = _place_tokens(row, rollout, branch)
        if output is None:
            output = [*_iter_token_items(rollout, branch)]
        yield {
            **kept,
            RESPONSES_CREATE_PARAMS_KEY_NAME: row.get(RESPONSES_CREATE_PARAMS_KEY_NAME, {}),
            RESPONSE_KEY_NAME: {**as_mapping(row.get(RESPONSE_KEY_NAME)), "output": output},
            "reward": sample.reward,
            "_ng_export": sample.describe(number),
        }


_NOT_FOR_NEMO_RL = OBSERVED_KEYS | {TOKEN_CAPTURE_KEY}


def _list_token_fields(rollout: TrainableRollout, branch: Branch) -> dict[int, dict[str, Any]]:
    """Return the token fields of each turn of a branch, with each prompt made of the branch's tokens before it."""
    fields = {}
    for turn, (start, _) in zip(branch.turns, branch.find_generated(rollout.turns), strict=True):
        fields[turn] = {
            "prompt_token_ids": branch.prompt_ids + branch.completion_ids[:start],
            "generation_token_ids": rollout.turns[turn].generated_ids,
            "generation_log_probs": rollout.turns[turn].log_probs,
        }
    return fields


def _place_tokens(row: Record, rollout: TrainableRollout, branch: Branch) -> list[Record] | None:
    """Return the items of the response with the tokens of the branch; None if some tokens belong to no item."""
    if rollout.drift == "clean" and rollout.turns[0].source == "response":
        return list_answer_items(row.get(RESPONSE_KEY_NAME))
    fields = _list_token_fields(rollout, branch)
    first = 0
    items: list[Record] = []
    for item in list_answer_items(row.get(RESPONSE_KEY_NAME)):
        generated_ids = item.get("generation_token_ids")
        if generated_ids is None:
            items.append(item)
            continue
        bare = {name: value for name, value in item.items() if name not in ALL_TOKEN_FIELDS}
        number = find_turn(rollout.turns, item.get("prompt_token_ids"), generated_ids, first)
        if number is not None:
            bare |= fields.pop(number, {})
            first = number + 1
        items.append(bare)
    return None if fields else items


def _iter_token_items(rollout: TrainableRollout, branch: Branch) -> Iterator[Record]:
    """Yield an item for each turn, without text: the tokens came from calls that the response does not show."""
    for number, fields in _list_token_fields(rollout, branch).items():
        call_id = rollout.turns[number].call_id
        yield {
            "type": "message",
            "role": "assistant",
            "id": call_id or f"turn_{number}",
            "status": "completed",
            "content": [],
            **fields,
        }
