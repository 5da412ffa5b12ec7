# SPDX-License-Identifier: Apache-2.0
"""Rollouts for programs: play examples against running agents, one awaitable each.

Here are the settings of a collection, the keys by which agents and verifiers route a result, and the loop that a
trainer drives itself. Files, resuming and accounting of a whole run are not here.
"""

import asyncio
import os
from asyncio import Semaphore
from collections.abc import Awaitable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field, PositiveInt

from nemo_gym._util.keys import NG_FAILURE_CLASS_KEY as NG_FAILURE_CLASS_KEY
from nemo_gym._util.keys import NG_NO_PERSIST_KEY as NG_NO_PERSIST_KEY
from nemo_gym._util.keys import NG_TERMINAL_KEY as NG_TERMINAL_KEY
from nemo_gym.config_types import BaseNeMoGymCLIConfig, BaseServerConfig, UploadRolloutsConfigMixin
from nemo_gym.errors import GymError
from nemo_gym.global_config import AGENT_REF_KEY_NAME, ROLLOUT_INDEX_KEY_NAME, SKILLS_REF_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status, setup_server_client

_MAX_ATTEMPTS_ENV = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
_CARRIED_KEYS = (TASK_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME, AGENT_REF_KEY_NAME, SKILLS_REF_KEY_NAME)


class SkillsConfig(BaseModel):
    """Skills that agents of the run are given."""

    path: str
    """Folder that holds the skills."""


class SharedRolloutCollectionConfig(UploadRolloutsConfigMixin, BaseNeMoGymCLIConfig):
    """What every kind of collection needs."""

    output_jsonl_fpath: str = Field(description="The output data JSONL file path.")
    num_samples_in_parallel: PositiveInt | None = Field(
        default=None, description="Limit the number of rollouts that run at once."
    )
    responses_create_params: dict[str, Any] = Field(
        default_factory=dict, description="Overrides for the create params of every row, such as `temperature`."
    )
    disable_aggregation: bool = Field(default=False, description="Write rollouts only, no aggregate metrics.")
    rollout_collection_driver: str | None = Field(
        default=None, description="`module:function` that collects instead, called with this config."
    )


class E2ERolloutCollectionConfig(SharedRolloutCollectionConfig):
    """Prepare the data, start the servers, collect, stop."""

    split: Literal["train", "validation", "benchmark"] = Field(description="Which datasets of the config to run.")
    reuse_existing_data_preparation: bool = Field(default=False, description="Take the data an earlier run prepared.")


class RolloutCollectionConfig(SharedRolloutCollectionConfig):
    """Perform a batch of rollout collection against running servers."""

    agent_name: str | None = Field(default=None, description="The agent of rows that name none.")
    input_jsonl_fpath: str = Field(description="The input tasks, in the form of a file path to a JSONL file.")
    limit: PositiveInt | None = Field(default=None, description="Maximum number of tasks to take from the input.")
    num_repeats: PositiveInt | dict[str, PositiveInt] | None = Field(
        default=1, description="How often to run each task: a number, or one per agent with `_default`."
    )
    num_repeats_add_seed: bool = Field(default=False, description="Send the rollout index as the sampling seed.")
    resume_from_cache: bool = Field(default=False, description="Run only what the output does not hold yet.")
    prompt_config: str | None = Field(default=None, description="A prompt template applied to every row.")
    skills: SkillsConfig | None = Field(default=None, description="Skills for the agents of the run.")

    @property
    def materialized_jsonl_fpath(self) -> Path:
        """Where the expanded inputs are written."""
        output = Path(self.output_jsonl_fpath)
        return output.with_name(f"{output.stem}_materialized_inputs.jsonl")


class RolloutCollectionHelper(BaseModel):
    """Plays examples against the agents that they name."""

    def setup_server_client(self, head_server_config: BaseServerConfig | None = None) -> ServerClient:
        """A client for the running servers."""
        return setup_server_client(head_server_config)

    def run_examples(
        self,
        examples: list[dict[str, Any]],
        head_server_config: BaseServerConfig | None = None,
        semaphore: Semaphore | None = None,
    ) -> Iterator[Awaitable[tuple[dict[str, Any], dict[str, Any]]]]:
        """One awaitable of `(row, result)` for each example, in the order in which they finish."""
        client = self.setup_server_client(head_server_config)
        limit = semaphore or nullcontext()

        async def play(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            async with limit:
                response = await client.post(_agent_of(row), "/run", json=row)
                await raise_for_status(response)
                result = await get_response_json(response)
            result.update({key: row[key] for key in _CARRIED_KEYS if key in row})
            return row, result

        return iter(asyncio.as_completed([play(row) for row in examples]))


def _agent_of(row: dict[str, Any]) -> str:
    agent = (row.get(AGENT_REF_KEY_NAME) or {}).get("name")
    if not agent:
        raise GymError(
            f"a row names no agent: it has only {', '.join(sorted(row))}.\n"
            'hint: give it `"agent_ref": {"type": "responses_api_agents", "name": "<agent>"}`, or pass `agent_name`'
        )
    return str(agent)


def _get_max_rollout_attempts() -> int:
    """How often a rollout that failed may be tried in all, over resumed runs."""
    given = os.environ.get(_MAX_ATTEMPTS_ENV, "3")
    if not given.isdigit() or int(given) < 1:
        raise GymError(f"{_MAX_ATTEMPTS_ENV} must be a positive whole number, not {given!r}")
    return int(given)


def loads_jsonl_line(raw: bytes | str, path: str | Path, line: int) -> Any:
    """One line of a JSONL file; the error names the file and the line."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{path}: line {line} is not JSON: {error}") from error
