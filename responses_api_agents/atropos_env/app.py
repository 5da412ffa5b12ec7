# SPDX-License-Identifier: Apache-2.0
"""Plays Atropos environments: the environment owns the loop and the score, and the model server provides the model."""

import asyncio
import json
from statistics import fmean
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import Field, PrivateAttr

from nemo_gym.adapters.rollout_runner import (
    LibraryRunner,
    ModelEndpoint,
    RolloutRunnerConfig,
    RunnerResult,
    RunnerRunRequest,
    RunnerVerifyResponse,
    read_sampling,
)
from nemo_gym.errors import GymError, RolloutFailure
from responses_api_agents.atropos_env.environments import OpenEnvironment, open_environment


class AtroposEnvConfig(RolloutRunnerConfig):
    """Config of the agent."""

    environment_config: dict[str, Any] = {}
    """Fields of the environments' configs, which override those of `config_init`; a row's own fields override these."""


class AtroposRunRequest(RunnerRunRequest):
    """A task: an item of an environment."""

    environment: str
    """The class path: `module:Class` or `folder/file.py:Class`."""
    environment_config: dict[str, Any] = {}
    """Fields of the environment's config."""
    item_index: int | None = Field(default=None, ge=0)
    """The index of the item, in the order in which the environment returns them."""
    item: Any = None
    """The item itself, instead of an index."""


class LoopResources:
    """The client and environments of one event loop, whose locks and connections they may hold."""

    def __init__(self) -> None:
        self.client: Any = None
        self.environments: dict[str, asyncio.Task[OpenEnvironment]] = {}


class AtroposEnv(LibraryRunner):
    """An agent whose rollouts an Atropos environment plays and scores."""

    config: AtroposEnvConfig
    _loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopResources] = PrivateAttr(default_factory=WeakKeyDictionary)

    async def run(self, body: AtroposRunRequest) -> RunnerVerifyResponse:  # type: ignore[override]
        """Play one rollout."""
        return await super().run(body)

    async def play_in_library(self, task: dict[str, Any], model: ModelEndpoint) -> RunnerResult:
        """Play an item as the library does, and return its score."""
        if (task.get("item") is None) == (task.get("item_index") is None):
            raise RolloutFailure("agent", "a row needs an `item` or an `item_index`.\nhint: give one of the two")
        resources = self._loops.setdefault(asyncio.get_running_loop(), LoopResources())
        settings = {**self.config.environment_config, **(task.get("environment_config") or {})}
        environment = await self._open(resources, task["environment"], settings)

        from responses_api_agents.atropos_env.model_calls import begin_calls, make_client

        resources.client = resources.client or make_client(self.config.rollout_timeout_s)
        calls = begin_calls(resources.client, model, read_sampling(task))
        item = task.get("item")
        if item is None:
            item = await environment.get_item(task["item_index"])
        played = await environment.collect(item)
        if calls.failed is not None:
            raise RolloutFailure(
                "model_endpoint",
                f"{task['environment']!r} returned a score although one of its model calls had failed: {calls.failed}",
                True,
            ) from calls.failed
        scores = [score for group in played.groups for score in group]
        metrics = {"best_score": max(scores), "worst_score": min(scores)} if len(scores) > 1 else {}
        return RunnerResult(
            fmean(scores), metrics=metrics, info={"scores": played.groups, "postponed_items": played.postponed}
        )

    async def _open(self, resources: LoopResources, path: str, settings: dict[str, Any]) -> OpenEnvironment:
        """Return an environment, set up on first use; try again if that failed."""
        key = json.dumps([path, settings], sort_keys=True)
        opening = resources.environments.get(key)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            opening = resources.environments[key] = asyncio.create_task(open_environment(path, settings))
        try:
            return await asyncio.shield(opening)
        except RolloutFailure:
            raise
        except GymError as error:
            raise RolloutFailure("agent", str(error)) from error


if __name__ == "__main__":
    AtroposEnv.run_webserver()
