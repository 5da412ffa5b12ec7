# SPDX-License-Identifier: Apache-2.0
"""Rollouts for programs: play examples against running agents, one awaitable each.

Here are the settings of a collection, the keys by which agents and verifiers route a result, and the loop that a
trainer drives itself. Files, resuming and accounting of a whole run are not here.
"""

import asyncio
import os
from asyncio import Semaphore
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field, PositiveInt

from nemo_gym._rollouts.collect import CollectSettings, collect
from nemo_gym._rollouts.control import RunControl
from nemo_gym._rollouts.expand import ExpandSettings, materialize
from nemo_gym._rollouts.inputs import read_input
from nemo_gym._rollouts.journal import Journal, checked_reward, failed_row, scored_row
from nemo_gym._rollouts.limiter import AdaptiveLimit, FixedLimit, Limiter
from nemo_gym._rollouts.lock import run_lock
from nemo_gym._rollouts.manifest import Counts, Manifest, input_identity
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym._rollouts.play import Player, Post
from nemo_gym._rollouts.resume import planned
from nemo_gym._rollouts.types import Scored, key_of
from nemo_gym._transport.failures import Failure
from nemo_gym._util.jsonl import read_rows
from nemo_gym._util.keys import NG_FAILURE_CLASS_KEY as NG_FAILURE_CLASS_KEY
from nemo_gym._util.keys import NG_NO_PERSIST_KEY as NG_NO_PERSIST_KEY
from nemo_gym._util.keys import NG_TERMINAL_KEY as NG_TERMINAL_KEY
from nemo_gym.config_types import BaseNeMoGymCLIConfig, BaseServerConfig, UploadRolloutsConfigMixin
from nemo_gym.errors import GymError
from nemo_gym.global_config import AGENT_REF_KEY_NAME
from nemo_gym.server_utils import ServerClient, setup_server_client

_MAX_ATTEMPTS_ENV = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"


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


class FailedRollout(dict[str, Any]):
    """What stands in for the result of a rollout that has none: its row in the failures file, without a reward."""

    def __init__(self, row: Mapping[str, Any], failure: Failure) -> None:
        super().__init__(row)
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self.failure)


Played = tuple[dict[str, Any], dict[str, Any]]


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
    ) -> Iterator[Awaitable[Played]]:
        """One awaitable of `(row, result)` for each example, in the order in which they finish.

        A rollout that fails gives a `FailedRollout` for its result; none raises, and none is missing.
        """
        for row in examples:
            _require_agent(row)
        client = self.setup_server_client(head_server_config)
        player = Player(_post_with(client), timeout_s=None, checked_reward=checked_reward)
        limit = semaphore or nullcontext()

        async def play(row: dict[str, Any]) -> Played:
            async with limit:
                outcome = await player.play(row)
            if isinstance(outcome, Scored):
                return row, scored_row(outcome)
            return row, FailedRollout(failed_row(outcome), outcome.failure)

        return iter(asyncio.as_completed([play(row) for row in examples]))

    async def run_from_config(self, config: RolloutCollectionConfig) -> list[dict[str, Any]]:
        """Collect rollouts from servers that run, into the files of `config`; the scored ones, by task and rollout."""
        paths, client = RunPaths.of(config.output_jsonl_fpath), self.setup_server_client()
        overrides = ExpandSettings(
            agent_name=config.agent_name,
            limit=config.limit,
            repeats=config.num_repeats or 1,
            add_seed=config.num_repeats_add_seed,
            overrides=config.responses_create_params,
        )
        with run_lock(paths):
            source = config.input_jsonl_fpath
            plan = materialize(read_input(source), overrides, source, paths)
            counts = Counts(requested=plan.rollouts, not_played=plan.rollouts)
            manifest = Manifest(counts=counts, input=input_identity(source, paths.materialized_draft))
            limiter: Limiter = AdaptiveLimit()
            if config.num_samples_in_parallel:
                limiter = FixedLimit(config.num_samples_in_parallel)
            with Journal.begin(paths, manifest) as journal:
                await collect(
                    planned(paths),
                    _post_with(client),
                    journal,
                    limiter,
                    RunControl(),
                    CollectSettings(),
                    lambda outcome: None,
                )
        return sorted(read_rows(paths.output), key=key_of)


def _post_with(client: ServerClient) -> Post:
    return lambda agent, row: client.post(agent, "/run", json=row)


def _require_agent(row: Mapping[str, Any]) -> None:
    if not (row.get(AGENT_REF_KEY_NAME) or {}).get("name"):
        raise GymError(
            f"a row names no agent: it has only {', '.join(sorted(row))}.\n"
            'hint: give it `"agent_ref": {"type": "responses_api_agents", "name": "<agent>"}`, or pass `agent_name`'
        )


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
