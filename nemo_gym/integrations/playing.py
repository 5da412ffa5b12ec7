# SPDX-License-Identifier: Apache-2.0
"""Play tasks for a trainer that lives in ordinary, synchronous code: rows in, trainable rollouts out.

The servers run already: `RunHelper` of `nemo_gym.cli` starts them in this process, `gym env start` in another.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym._util.off_the_loop import LoopThread
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import (
    AGENT_REF_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.trajectories import Decode, TrainableRollout

T = TypeVar("T")
Task = dict[str, Any]
Key = tuple[int, int]
"""Task index and rollout index."""


def read_tasks(path: str, agent: str | None = None) -> list[Task]:
    """Return the tasks of a JSONL file, looked up in the working directory and then in the package.

    `agent` plays those that name no agent themselves.
    """
    named = {}
    if agent is not None:
        named[AGENT_REF_KEY_NAME] = {"type": "responses_api_agents", "name": agent}
    return [{**named, **row} for row in read_rows(_resolve_under_cwd_or_install(path))]


def make_row(task: Task, key: Key, create_params: Mapping[str, Any]) -> Task:
    """Return the row of one rollout of `task`: `create_params` replace those of the task, key by key."""
    params = {**(task.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}), **create_params}
    task_index, rollout_index = key
    return {
        **task,
        RESPONSES_CREATE_PARAMS_KEY_NAME: params,
        TASK_INDEX_KEY_NAME: task_index,
        ROLLOUT_INDEX_KEY_NAME: rollout_index,
    }


def open_rollout_loop(name: str) -> LoopThread:
    """Return an event loop on which rollouts are played; closing it closes their connections."""
    return LoopThread(name, at_end=close_global_aiohttp_client)


async def play_rows(
    rows: Sequence[Task],
    *,
    head_server_config: BaseServerConfig | None = None,
    attempts: int = 2,
    decode: Decode | None = None,
) -> list[TrainableRollout]:
    """Play `rows` and return their rollouts in the same order, failed ones included.

    A rollout that failed is played again, `attempts` times in all.
    """
    helper = RolloutCollectionHelper()
    done = dict[Key, TrainableRollout]()
    left = {_key_of(row): row for row in rows}
    for _ in range(attempts):
        for played in helper.run_examples(list(left.values()), head_server_config, route_failures_to_sidecar=True):
            row, result = await played
            done[_key_of(row)] = TrainableRollout.from_row(result, decode)
        left = {key: row for key, row in left.items() if done[key].failure is not None}
        if not left:
            break
    return [done[_key_of(row)] for row in rows]


def _key_of(row: Task) -> Key:
    return row[TASK_INDEX_KEY_NAME], row[ROLLOUT_INDEX_KEY_NAME]
