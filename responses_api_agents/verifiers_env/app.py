# SPDX-License-Identifier: Apache-2.0
"""Plays verifiers v1 environments: tasksets with harnesses and rewards; the model server provides the model.

The library runs in this process, as in its own `vf-eval`. It starts a program, the harness, for each rollout.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from pydantic import BaseModel, Field, PrivateAttr

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
from responses_api_agents.verifiers_env.environments import OpenEnvironment, build_environment, find_task

_KINDS = {"ProviderError": "model_endpoint", "TaskError": "verifier"}
"""Our failure kinds for the library's error types; any other error is of kind `agent`."""


class VerifiersEnvConfig(RolloutRunnerConfig):
    """Config of the agent."""

    harness: str = "null"
    """The library's harness for tasksets without one: `null` chats and calls tools, `bash` also runs code."""
    runtime: str = "subprocess"
    """Where harnesses run: the library's `subprocess`, `docker`, `apptainer`, …"""
    max_rollouts: int = Field(default=32, ge=1)
    """How many rollouts the library plays at a time, each with its own harness process; others wait."""


class EnvironmentTask(BaseModel, extra="forbid"):
    """A reference to a task of an environment."""

    id: str
    """The id of the taskset: the name of a package, or a path."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The library's `env` block, as in its config files: `{taskset: {...}, agent: {max_turns: 4}}`."""
    task: int
    """The index of the task in the taskset."""


class VerifiersRunRequest(RunnerRunRequest):
    """A task."""

    environment: EnvironmentTask


class VerifiersEnv(LibraryRunner):
    """An agent whose rollouts are episodes of a verifiers v1 environment."""

    config: VerifiersEnvConfig
    _open: dict[tuple[Any, str], OpenEnvironment] = PrivateAttr(default_factory=dict)
    _turns: dict[Any, asyncio.Semaphore] = PrivateAttr(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        """Return the app. Put uv, which runs the harnesses and is in this server's virtual environment, on the PATH."""
        programs = str(Path(sys.executable).parent)
        if programs not in os.environ.get("PATH", "").split(os.pathsep):
            os.environ["PATH"] = os.pathsep.join(filter(None, [programs, os.environ.get("PATH")]))
        return super().setup_webserver()

    async def run(self, body: VerifiersRunRequest) -> RunnerVerifyResponse:  # type: ignore[override]
        """Play one rollout."""
        return await super().run(body)

    async def play_in_library(self, task: dict[str, Any], model: ModelEndpoint) -> RunnerResult:
        """Play a task as the library does, and return its reward."""
        from verifiers.v1.clients import ModelContext
        from verifiers.v1.configs.client import EvalClientConfig
        from verifiers.v1.env import RunSlot
        from verifiers.v1.types import SamplingConfig

        asked = EnvironmentTask.model_validate(task["environment"])
        environment = await self._open_environment(asked)
        found = await asyncio.to_thread(find_task, environment, asked.task, asked.id)
        # The library reads keys from environment variables, which all rollouts share: each has one of its own.
        key_name = f"NEMO_GYM_SESSION_KEY_{uuid4().hex}"
        client = EvalClientConfig(base_url=model.base_url, api_key_var=key_name)
        context = ModelContext(model=model.model, client=client, sampling=SamplingConfig(**read_sampling(task)))
        turns = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.config.max_rollouts))
        os.environ[key_name] = model.api_key
        try:
            episode = await environment.run_slot(RunSlot(found), context, turns)
        finally:
            del os.environ[key_name]
        return _read_episode(asked.id, episode)

    async def _open_environment(self, asked: EnvironmentTask) -> Any:
        key = (asyncio.get_running_loop(), json.dumps([asked.id, asked.config], sort_keys=True))
        if key not in self._open:
            try:
                environment = build_environment(
                    asked.id, asked.config, harness=self.config.harness, runtime=self.config.runtime
                )
            except GymError as error:
                raise RolloutFailure("agent", str(error)) from error
            self._open[key] = OpenEnvironment(environment)
        try:
            await self._open[key].wait_until_open()
        except Exception:
            self._open.pop(key, None)
            raise
        return self._open[key].environment


def _read_episode(name: str, episode: Any) -> RunnerResult:
    """Return the reward of an episode: the mean over the traces of its trainable agents."""
    traces = [trace for trace in episode.traces if trace.agent.trainable]
    if not episode.ok or not traces:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        last = errors[-1] if errors else None
        kind = _KINDS.get(last.type, "agent") if last else "agent"
        reason = f"{last.type}: {last.message}" if last else "it has no trace"
        raise RolloutFailure(kind, f"an episode of {name!r} failed: {reason}", kind != "verifier")
    components: dict[str, list[float]] = {}
    metrics: dict[str, list[float]] = {"num_turns": [trace.num_turns for trace in traces]}
    for trace in traces:
        for part, reward in trace.rewards.items():
            components.setdefault(part, []).append(_require(reward and reward.value, name, part))
        for part, value in trace.metrics.items():
            metrics.setdefault(part, []).append(_require(value, name, part))
    count = len(traces)
    return RunnerResult(
        sum(trace.reward for trace in traces) / count,
        components={part: sum(values) / count for part, values in components.items()},
        metrics={part: sum(values) / len(values) for part, values in metrics.items()},
        info={"stop_conditions": [trace.stop_condition for trace in traces]},
    )


def _require(value: float | None, name: str, part: str) -> float:
    """Return `value`; raise if it was not scored."""
    if value is None:
        raise RolloutFailure("verifier", f"{part!r} of {name!r} was not scored.\nhint: see the server's log")
    return float(value)


if __name__ == "__main__":
    VerifiersEnv.run_webserver()
