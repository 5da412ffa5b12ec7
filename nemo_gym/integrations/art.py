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
from nemo_gym._training.chat_messages import NotExpressible
from nemo_gym._training.formats import art_groups
from nemo_gym._training.formats.sample import Sample
from nemo_gym._training.record import TrainableRollout
from nemo_gym._util.row_keys import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.errors import RolloutFailure
from nemo_gym.integrations.libraries import import_library
from nemo_gym.integrations.live import LiveGym, LiveGymError, require_trainable

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
    try:
        record = art_groups.build_trajectory(Sample.of(rollout, dict(row)))
    except NotExpressible as reason:
        raise RolloutFailure("not_expressible", f"ART has no form for this rollout: {reason}") from reason
    for history in (record, *record["additional_histories"]):
        history["messages_and_choices"] = [_restore_choice(item) for item in history["messages_and_choices"]]
    if record["initial_policy_version"] is None:
        record["initial_policy_version"], record["final_policy_version"] = policy_versions
    return art.Trajectory(**record)


def _restore_choice(item: dict[str, Any]) -> Any:
    from openai.types.chat.chat_completion import Choice  # ART brings it

    return Choice.model_validate(item) if "finish_reason" in item else item


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
