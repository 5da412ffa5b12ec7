# SPDX-License-Identifier: Apache-2.0
"""Base classes of environments that `gymnasium_agent` plays step by step, with text or with tool calls.

    class GuessServer(TextStepServer):
        @staticmethod
        def make_environment(task):
            return GuessingGame(task["secret"])       # with `reset(seed=...)`, `step(text)` and optionally `close()`

An environment follows Gymnasium's interface: `reset` returns the first observation and info, `step` returns
observation, reward, terminated, truncated and info; both may be coroutines. An observation is a text, messages, or
None. Each episode runs in its own process, see `nemo_gym._isolation.episode_processes`.
"""

import asyncio
import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fastapi import FastAPI, HTTPException, Request
from pydantic import PositiveFloat, PositiveInt, PrivateAttr

from nemo_gym import grading
from nemo_gym._isolation.episode_processes import Episode, EpisodeProcesses
from nemo_gym._util.row_keys import ROLLOUT_INDEX_KEY_NAME, SESSION_ID_KEY, TASK_INDEX_KEY_NAME
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.session_store import UnknownSession
from nemo_gym.step_environments import (
    EnvResetRequest,
    EnvResetResponse,
    GymnasiumServer,
    Observation,
    SessionState,
    StepResult,
    extract_text,
    tool_output,
)

_NON_TASK_KEYS = ("agent_ref", "response")
_MAX_SWEEP_INTERVAL_S = 60.0


class StepServerConfig(BaseResourcesServerConfig):
    """Config of an environment played step by step."""

    max_steps: PositiveInt | None = None
    """The number of steps after which an episode is truncated; None: no limit but the environment's own."""
    step_timeout_s: PositiveFloat = 60.0
    """The time limit for a step. An episode with a longer step fails."""
    reset_timeout_s: PositiveFloat = 300.0
    """The time limit for making and resetting an environment."""
    max_sessions: PositiveInt = 128
    """How many episodes run at a time, each in its own process; others wait until one ends."""
    session_memory_mb: PositiveInt = 2048
    """How much an episode's process may grow. An environment that needs more memory fails."""
    idle_timeout_s: PositiveFloat = 3600.0
    """An episode without a step for this long is dropped."""


class StepServer(GymnasiumServer):
    """The common part of `TextStepServer` and `ToolStepServer`: an environment per session, with limits and cleanup."""

    config: StepServerConfig
    PRELOAD: ClassVar[tuple[str, ...]] = ()
    """Modules that every episode needs; they are imported once for all of them."""
    _processes: EpisodeProcesses = PrivateAttr()
    _ending: set["asyncio.Task[None]"] = PrivateAttr(default_factory=set)
    _is_sweeping: bool = PrivateAttr(default=False)

    @staticmethod
    def make_environment(task: dict[str, Any]) -> Any:
        """Return the environment of a task, which is the row without `responses_create_params`.

        This runs in the episode's process. Startup is fastest with a function from a module that imports only what it
        needs: `make_environment = staticmethod(my_module.make)`.
        """
        raise NotImplementedError("a step server needs `make_environment(task)`, or its own `open_episode`")

    @abstractmethod
    async def act(self, episode: Episode, response: NeMoGymResponse) -> dict[str, Any]:
        """Take the step that `response` calls for."""

    async def open_episode(self, task: dict[str, Any]) -> Episode:
        """Return an episode for a task, in its own process. Override this to play some tasks elsewhere.

        The object returned must have what an `Episode` has: `reset`, `step`, `end`, `steps` and `tools`.
        """
        return await self._processes.open()

    def setup_webserver(self) -> FastAPI:
        """Return the app. The episode processes end with it; none starts before the first episode."""
        app = super().setup_webserver()
        self.session_state = SessionState(ttl_s=self.config.idle_timeout_s, on_drop=self._drop)
        self._processes = EpisodeProcesses(
            type(self).make_environment,
            size=self.config.max_sessions,
            memory_bytes=self.config.session_memory_mb * 2**20,
            preload=self.PRELOAD,
        )
        self._processes.close_with(app)
        return app

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[Observation, dict[str, Any]]:
        """Start an episode."""
        await self.close_session(session_id)
        self._sweep()
        episode = await self.open_episode(metadata)
        self.session_state[session_id] = episode
        try:
            start = await episode.reset(metadata, derive_seed(metadata), self.config.reset_timeout_s)
        except BaseException:
            await self.close_session(session_id)
            raise
        return start["observation"], start["info"] or {}

    async def step(self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str) -> StepResult:
        """Take a step. Close the episode if it is over or has failed."""
        try:
            episode: Episode = self.session_state[session_id]
        except UnknownSession as error:
            raise HTTPException(
                400,
                "no episode is running in this session: it has ended, failed, or been idle for more than "
                f"{self.config.idle_timeout_s:g} s.\nhint: call /reset first and send back its cookie",
            ) from error
        try:
            result = await self.act(episode, action)
        except BaseException:
            await self.close_session(session_id)
            raise
        limit = self.config.max_steps
        truncated = result["truncated"] or (limit is not None and episode.steps >= limit and not result["terminated"])
        if result["terminated"] or truncated:
            await self.close_session(session_id)
        return result["observation"], result["reward"], result["terminated"], truncated, result.get("info") or {}

    async def close_session(self, session_id: str) -> None:
        """Close the session's environment, if it has one."""
        episode: Episode | None = self.session_state.pop(session_id, None)
        if episode is not None:
            await asyncio.shield(self._end(episode))

    def _end(self, episode: Episode) -> "asyncio.Task[None]":
        # A separate task, so that the environment is closed even if nobody is waiting any more.
        ending = asyncio.create_task(episode.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return ending

    def _drop(self, session_id: str, episode: Episode) -> None:
        self._end(episode)

    def _sweep(self) -> None:
        """Drop idle episodes regularly, for as long as there are any episodes."""
        if not self._is_sweeping:
            self._is_sweeping = True
            delay_s = min(_MAX_SWEEP_INTERVAL_S, self.config.idle_timeout_s)
            asyncio.get_running_loop().call_later(delay_s, self._sweep_again)

    def _sweep_again(self) -> None:
        self._is_sweeping = False
        if len(self.session_state):
            self._sweep()


class TextStepServer(StepServer):
    """An environment whose actions are texts: `step(text)`."""

    def extract_action(self, text: str) -> str:
        """Return the action in a reply: by default, everything except the thinking."""
        return grading.strip_thinking(text)

    async def act(self, episode: Episode, response: NeMoGymResponse) -> dict[str, Any]:
        """Pass the model's text to the environment."""
        return await episode.step([self.extract_action(extract_text(response))], self.config.step_timeout_s)


class ToolStepServer(StepServer):
    """An environment whose actions are tool calls: `step(calls, text)`, with `calls` as `grading.FunctionCall`s.

    Its `tools` are function definitions as a model receives them. Its observations may contain items
    `{"type": "function_call_output", "call_id": ..., "output": ...}`. A call to an unknown tool, or with arguments that
    are not a JSON object, is answered here and does not reach the environment, unless `find_mistake` is overridden.
    """

    async def handle_reset(self, body: EnvResetRequest, request: Request) -> EnvResetResponse:
        """`POST /reset`."""
        start = await super().handle_reset(body, request)
        episode: Episode = self.session_state[request.session[SESSION_ID_KEY]]
        start.tools = episode.tools
        return start

    def find_mistake(self, call: grading.FunctionCall, known: list[str]) -> str | None:
        """Return an error for the model instead of passing `call` to the environment; None passes it on."""
        if call.name not in known:
            return f"Unknown tool {call.name!r}. Available tools: {', '.join(known) or 'none'}"
        return None if call.arguments is not None else f"Invalid tool call arguments: {call.error}"

    async def act(self, episode: Episode, response: NeMoGymResponse) -> dict[str, Any]:
        """Let the environment run the model's calls."""
        known = [tool["name"] for tool in episode.tools]
        calls = grading.function_calls(response)
        refused = {call.call_id: error for call in calls if (error := self.find_mistake(call, known))}
        if refused and len(refused) == len(calls):
            episode.steps += 1
            result: dict[str, Any] = {"observation": None, "reward": 0.0, "terminated": False, "truncated": False}
        else:
            accepted = [tuple(call) for call in calls if call.call_id not in refused]
            result = await episode.step([accepted, extract_text(response)], self.config.step_timeout_s)
        answers, result["observation"] = _split_outputs(result["observation"])
        answers = {**answers, **{call_id: json.dumps({"error": error}) for call_id, error in refused.items()}}
        outputs = [tool_output(call.call_id, answers.get(call.call_id, "")) for call in calls]
        if outputs:
            result["info"] = {**(result.get("info") or {}), "tool_outputs": outputs}
        return result


def _split_outputs(observation: Observation) -> tuple[dict[str, str], Observation]:
    """Return the tool outputs in an observation by call id, and the rest of it."""
    if not isinstance(observation, list):
        return {}, observation
    outputs = {item["call_id"]: item["output"] for item in observation if item.get("type") == "function_call_output"}
    rest = [item for item in observation if item.get("type") != "function_call_output"]
    return outputs, rest or None


def derive_seed(task: Mapping[str, Any]) -> int:
    """Return the seed of an episode: the task's `seed`, else one derived from the task and the rollout's index.

    Runs are thus repeatable. Repeats of a task with a seed start alike; repeats of one without a seed differ.
    """
    if isinstance(seed := task.get("seed"), int):
        return seed
    own = {key: value for key, value in task.items() if not key.startswith("_ng_") and key not in _NON_TASK_KEYS}
    indices = [task.get(TASK_INDEX_KEY_NAME), task.get(ROLLOUT_INDEX_KEY_NAME)]
    digest = hashlib.sha256(json.dumps([own, indices], sort_keys=True, default=repr).encode()).digest()
    return int.from_bytes(digest[:4], "big")
