# SPDX-License-Identifier: Apache-2.0
"""ART 0.5.23 (`openpipe-art`, Python 3.12 and later): rollouts as trajectories, and groups of them played live.

    groups = read_groups("results/rollouts.jsonl", "results/rollouts_failures.jsonl")
    groups = await gather(model, rows, config_paths, repeats=8)  # played by ART's own inference endpoint

Each answer of the model is a `Choice` that carries the ids of its prompt and its own with their log-probs, from which
ART trains without tokenizing anything. A rollout that failed, or whose tokens were lost, is among the `exceptions` of
its group, so that it has no part in the baseline; it never becomes a trajectory.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from nemo_gym._results.result_rows import read_results
from nemo_gym._training.alignment import Turn
from nemo_gym._training.record import TrainableRollout
from nemo_gym._util.row_keys import (
    RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.errors import RolloutFailure
from nemo_gym.integrations.libraries import import_library
from nemo_gym.integrations.live import LiveGym, LiveGymError, require_trainable
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.token_id_capture import TOKEN_FIELDS

ART_VERSION = "0.5.23"
"""The version of openpipe-art that this module was made for and tested with."""
ENDPOINT_CONFIG = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
"""The config of a policy model that sends token ids: ART's inference endpoint is a vLLM."""


PolicyVersions = tuple[int | None, int | None]
"""The versions of the weights when a rollout began and when it ended."""


def build_trajectory(row: Mapping[str, Any], policy_versions: PolicyVersions = (None, None)) -> Any:
    """Return a result row as an `art.Trajectory`; RolloutFailure if it must not be trained on.

    `policy_versions`: for rows that do not say themselves which weights played them.
    """
    art = _import_art()
    rollout = TrainableRollout.from_row(row)
    require_trainable(rollout, row)
    main, others, tools = _build_histories(row, rollout)
    first, last = rollout.policy_versions
    known = {
        "agent": rollout.agent,
        "task_index": rollout.task_index,
        "rollout_index": rollout.rollout_index,
        "rollout_id": rollout.rollout_id,
        "drift": rollout.drift,
        "cut_off": rollout.cut_off,
    }
    history = import_library("art.trajectories", "LegacyHistory", package="openpipe-art", version=ART_VERSION)
    return art.Trajectory(
        messages_and_choices=main,
        tools=tools,
        additional_histories=[history.LegacyHistory(messages_and_choices=each, tools=tools) for each in others],
        reward=rollout.reward,
        metrics={**rollout.reward_components, "turns": len(rollout.turns), "branches": len(rollout.branches)},
        metadata={name: value for name, value in known.items() if value is not None},
        initial_policy_version=policy_versions[0] if first is None else first,
        final_policy_version=policy_versions[1] if last is None else last,
    )


def build_groups(rows: Iterable[Mapping[str, Any]], policy_versions: PolicyVersions = (None, None)) -> list[Any]:
    """Return one `art.TrajectoryGroup` for each task of an agent, in the order in which they first occur.

    `rows` are those of a rollouts file and of its failures file: failures become `exceptions`.
    """
    art = _import_art()
    by_group: dict[Any, tuple[list[Any], list[BaseException]]] = {}
    for row in rows:
        trajectories, exceptions = by_group.setdefault(TrainableRollout.from_row(row).group, ([], []))
        try:
            trajectories.append(build_trajectory(row, policy_versions))
        except RolloutFailure as failure:
            exceptions.append(failure)
    return [art.TrajectoryGroup(played, exceptions=failed) for played, failed in by_group.values()]


def read_groups(*paths: str | os.PathLike[str]) -> list[Any]:
    """Return the groups of finished runs, from their rollouts files and failures files."""
    return build_groups(line.row for path in paths for line in read_results(path))


async def gather(
    model: Any,
    rows: Sequence[Mapping[str, Any]],
    config_paths: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    repeats: int = 1,
    parallel: int | None = None,
) -> list[Any]:
    """Play every row `repeats` times with the inference endpoint of an ART model; return one group for each row.

    The servers of the configs run in this process meanwhile. `parallel`: at most so many rollouts at once.
    """
    if not (model.inference_base_url and model.inference_api_key):
        raise LiveGymError(
            f"the ART model {model.name!r} has no inference endpoint.\nhint: `await model.register(backend)` first"
        )
    values = {
        "policy_base_url": model.inference_base_url,
        "policy_api_key": model.inference_api_key,
        "policy_model_name": model.get_inference_name(),
    }
    limit = asyncio.Semaphore(parallel) if parallel else nullcontext()

    async def play(row: dict[str, Any]) -> dict[str, Any]:
        async with limit:
            return await gym.run(row)

    tasks = [
        {**row, TASK_INDEX_KEY_NAME: task, ROLLOUT_INDEX_KEY_NAME: number}
        for task, row in enumerate(rows)
        for number in range(repeats)
    ]
    before = await model.get_step()
    async with await LiveGym.start(config_paths, overrides, model_config=ENDPOINT_CONFIG, values=values) as gym:
        played = await asyncio.gather(*map(play, tasks))
    return build_groups(played, (before, await model.get_step()))


def _import_art() -> Any:
    return import_library("art", "Trajectory", "TrajectoryGroup", package="openpipe-art", version=ART_VERSION)


# --- messages and choices ---------------------------------------------------------------------------------------------


def _build_histories(
    row: Mapping[str, Any], rollout: TrainableRollout
) -> tuple[list[Any], list[list[Any]], list[dict[str, Any]] | None]:
    """Return the conversation that ends with the answer, those of other branches, and the tools.

    A conversation holds messages, and a Choice where the model wrote; messages are for readers, ART trains on choices.
    """
    prompt, said, tools = _list_messages(row)
    if sum(TOKEN_FIELDS[0] in message for message in said) != len(rollout.turns):
        # The tokens were put aside, so that the messages do not say which are whose.
        said = [{"role": "assistant", "content": None, TOKEN_FIELDS[0]: turn.prompt_ids} for turn in rollout.turns]
    main = rollout.main_branch
    histories: dict[int, list[Any]] = {id(branch): list(prompt) for branch in rollout.branches}
    branch_of = {number: branch for branch in rollout.branches for number in branch.turns}
    number = 0
    for message in said:
        bare = {name: value for name, value in message.items() if name not in TOKEN_FIELDS}
        if TOKEN_FIELDS[0] not in message:
            histories[id(main)].append(bare)
            continue
        branch = branch_of[number]
        is_cut_off = number == len(rollout.turns) - 1 and rollout.cut_off == "length"
        histories[id(branch)].append(_build_choice(bare, rollout.turns[number], is_cut_off=is_cut_off))
        number += 1
    others = [histories[id(branch)] for branch in rollout.branches if branch is not main]
    return histories[id(main)], others, tools


def _list_messages(
    row: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return the messages of the prompt, those after it with their tokens, and the tools, all as chat has them."""
    params = NeMoGymResponseCreateParamsNonStreaming.model_validate(row[RESPONSES_CREATE_PARAMS_KEY_NAME])
    converter = ResponsesConverter(return_token_id_information=True)
    asked = converter.responses_to_chat_completion_create_params(params)
    output = (row.get(RESPONSE_KEY_NAME) or {}).get("output") or []
    answered = converter.responses_to_chat_completion_create_params(
        NeMoGymResponseCreateParamsNonStreaming.model_construct(input=output)
    )
    tools = [dict(tool) for tool in asked.tools] if asked.model_fields_set & {"tools"} and asked.tools else None
    return [dict(each) for each in asked.messages], [dict(each) for each in answered.messages], tools


def _build_choice(message: Mapping[str, Any], turn: Turn, *, is_cut_off: bool) -> Any:
    from openai.types.chat.chat_completion import Choice  # ART brings it

    finish_reason = "length" if is_cut_off else "tool_calls" if message.get("tool_calls") else "stop"
    log_probs: list[dict[str, Any]] = [
        {"token": f"token_id:{token}", "logprob": log_prob, "bytes": None, "top_logprobs": []}
        for token, log_prob in zip(turn.generated_ids, turn.log_probs, strict=True)
    ]
    return Choice.model_validate(
        {
            "index": 0,
            "finish_reason": finish_reason,
            "message": message,
            "logprobs": {"content": log_probs, "refusal": None},
            "prompt_token_ids": turn.prompt_ids,
            "token_ids": turn.generated_ids,
        }
    )
