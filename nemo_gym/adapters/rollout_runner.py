# SPDX-License-Identifier: Apache-2.0
"""Base classes of agent servers around a third-party runner that owns its whole loop and only needs a model.

    class MyRunner(RolloutRunner):
        async def play(self, task, model):
            scored = await their_library.run(task["question"], base_url=model.base_url, api_key=model.api_key)
            return RunnerResult(scored.reward, components=scored.parts)

Every rollout has its own base URL, a session at the model server's gateway. The session records the model calls, with
token ids if the model returns them, and the rollout's response is built from them. The runner only returns a reward.

`play` shares the server's event loop. Use a `LibraryRunner` for an asynchronous library that may block, and a
`nemo_gym.cpu_pool.CpuPool`, which kills processes that exceed their time limit, for CPU-heavy work.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import Body as Body, FastAPI, HTTPException
from pydantic import ConfigDict, Field, PrivateAttr

from nemo_gym.adapters.call_recording import ModelEndpoint, record_calls
from nemo_gym.adapters.library_loop import LibraryLoop
from nemo_gym.adapters.playing import blame_model, play_in_time
from nemo_gym.adapters.recorded_calls import RecordedCall, fill_prompt, read_calls, write_response
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef
from nemo_gym.errors import RolloutFailure
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming

__all__ = [
    "LibraryRunner",
    "ModelEndpoint",
    "RolloutRunner",
    "RolloutRunnerConfig",
    "RunnerResult",
    "RunnerRunRequest",
    "RunnerVerifyResponse",
    "read_sampling",
]

_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens"}


@dataclass
class RunnerResult:
    """The result of a rollout."""

    reward: float
    components: dict[str, float] = field(default_factory=dict)
    """The named parts of the reward."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Numbers whose means are reported in the run's metrics."""
    info: dict[str, Any] = field(default_factory=dict)
    """Anything else to keep in the row."""


class RolloutRunnerConfig(BaseResponsesAPIAgentConfig):
    """Config of an agent around a third-party runner."""

    model_server: ModelServerRef
    """The model that plays the rollouts."""
    rollout_timeout_s: float = Field(default=3600.0, gt=0)
    """A rollout that takes longer fails."""
    run_once: bool = True
    """One instance serves all workers of a run, since it is given the URL of the model server next to it."""


class RunnerRunRequest(BaseRunRequest):
    """A task; its extra fields are for the runner."""

    model_config = ConfigDict(extra="allow")


class RunnerVerifyResponse(BaseVerifyResponse):
    """A played rollout."""

    model_config = ConfigDict(extra="allow")

    model_calls: int
    """The number of calls the model answered, including those outside the main conversation."""
    runner_metrics: dict[str, float]
    runner_info: dict[str, Any]


class RolloutRunner(SimpleResponsesAPIAgent):
    """An agent whose rollouts are played and scored by third-party code: override `play`."""

    config: RolloutRunnerConfig

    @abstractmethod
    async def play(self, task: dict[str, Any], model: ModelEndpoint) -> RunnerResult:
        """Play and score one rollout of the row `task`. An exception fails the rollout.

        Give a model that does badly a low score. Raise if the runner or its environment fails, with a RolloutFailure if
        the kind of failure is known.
        """

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """Refuse: a runner needs a task."""
        raise HTTPException(
            501, f"agent {self.config.name!r} only plays whole rollouts.\nhint: post a row of its dataset to /run"
        )

    async def run(self, body: RunnerRunRequest) -> RunnerVerifyResponse:  # type: ignore[override]
        """Play one rollout in its own session."""
        params = body.responses_create_params
        task = body.model_dump(mode="json", exclude_unset=True)
        async with record_calls(self, self.config.model_server.name, body) as recording:
            result = None
            error = None
            try:
                result = await play_in_time(
                    self.play(task, recording.endpoint), self.config.rollout_timeout_s, self.config.name
                )
            except Exception as raised:
                error = raised
            traces = await recording.fetch_traces()
        if error is not None:
            raise blame_model(error, traces)
        calls = _require_calls(traces)
        return self._build_row(task, params, _check_result(result, self.config.name), calls)

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """Return the mean of every reward component and every metric of the runner."""
        values: dict[str, list[float]] = {}
        for row in (row for rows in tasks for row in rows):
            for group in ("reward_components", "runner_metrics"):
                for name, value in (row.get(group) or {}).items():
                    values.setdefault(f"{group}/{name}", []).append(value)
        return {f"mean/{name}": sum(found) / len(found) for name, found in sorted(values.items())}

    def _build_row(
        self,
        task: dict[str, Any],
        params: NeMoGymResponseCreateParamsNonStreaming,
        result: RunnerResult,
        calls: Sequence[RecordedCall],
    ) -> RunnerVerifyResponse:
        given, response = write_response(calls)
        config = self.config
        row = {
            **task,
            "responses_create_params": fill_prompt(params, given),
            "response": response,
            "reward": config.skip_verification_reward if config.skip_verification else result.reward,
            "model_calls": len(calls),
            "runner_metrics": result.metrics,
            "runner_info": result.info,
        }
        if result.components:
            row["reward_components"] = result.components
        return RunnerVerifyResponse.model_validate(row)


class LibraryRunner(RolloutRunner):
    """A runner around an asynchronous library that may block: override `play_in_library`.

    Its rollouts share an event loop in a separate thread, so that blocking it does not stop the server.
    """

    _loop: LibraryLoop = PrivateAttr()

    @abstractmethod
    async def play_in_library(self, task: dict[str, Any], model: ModelEndpoint) -> RunnerResult:
        """Do what `play` does, in the library's event loop. A loop that stays blocked is replaced."""

    def setup_webserver(self) -> FastAPI:
        """Return the app; the library's event loop ends with it."""
        app = super().setup_webserver()
        self._loop = LibraryLoop(f"{self.config.name}: library")
        self._loop.close_with(app)
        return app

    async def play(self, task: dict[str, Any], model: ModelEndpoint) -> RunnerResult:
        """Play and score one rollout of `task`."""
        return await self._loop.run(self.play_in_library, task, model)


def read_sampling(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's sampling settings under their Chat Completions names."""
    params = task["responses_create_params"]
    return {chat: params[name] for name, chat in _SAMPLING.items() if params.get(name) is not None}


def _check_result(result: RunnerResult | None, agent: str) -> RunnerResult:
    """Return `result` if all its numbers are finite, else raise."""
    if not isinstance(result, RunnerResult):
        raise TypeError(f"`play` of {agent!r} returned {type(result).__name__}, not a RunnerResult")
    numbers = {"reward": result.reward, **result.components, **result.metrics}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise RolloutFailure(
                "verifier",
                f"the runner of {agent!r} returned {number!r} as its {name}, which is not a finite number.\n"
                "hint: check how its environment scores; it may take the mean of an empty list",
            )
    return result


def _require_calls(traces: Sequence[Mapping[str, Any]]) -> list[RecordedCall]:
    """Return the answered calls; raise if there are none, since a reward earned without the model does not count."""
    if calls := read_calls(traces):
        return calls
    raise blame_model(
        RolloutFailure(
            "agent",
            "the runner returned a reward, but none of its calls reached the model.\n"
            "hint: it must use the base URL passed to `play`; its client may have taken another from its own settings",
        ),
        traces,
    )
