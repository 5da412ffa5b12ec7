# SPDX-License-Identifier: Apache-2.0
"""Bases of environments that are played step by step, by `gymnasium_agent`: with text, or with tool calls.

    class GuessServer(TextStepServer):
        @staticmethod
        def make_environment(task):
            return GuessingGame(task["secret"])       # has `reset(seed=...)`, `step(text)` and perhaps `close()`

An environment keeps to Gymnasium's interface: `reset` returns the first observation and info, `step` returns
observation, reward, terminated, truncated and info; both may be coroutines. An observation is a text, messages, or
None. Each episode has a process of its own, see `nemo_gym._execution.episode_processes`.
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
from nemo_gym._execution.episode_processes import Episode, EpisodeProcesses
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

_NOT_THE_TASK = ("agent_ref", "response")
_MOST_SWEEPS_APART_S = 60.0


class StepServerConfig(BaseResourcesServerConfig):
    """Config of an environment that is played step by step."""

    max_steps: PositiveInt | None = None
    """Most steps of an episode, which is truncated then; None: as many as the environment allows."""
    step_timeout_s: PositiveFloat = 60.0
    """How long a step may take. An episode whose step takes longer has failed."""
    reset_timeout_s: PositiveFloat = 300.0
    """How long making and resetting an environment may take."""
    max_sessions: PositiveInt = 128
    """How many episodes run at a time, each in a process of its own; others wait until one ends."""
    session_memory_mb: PositiveInt = 2048
    """By how much the process of an episode may grow. An environment that needs more has failed."""
    idle_timeout_s: PositiveFloat = 3600.0
    """An episode without a step for so long is given up."""


class StepServer(GymnasiumServer):
    """What `TextStepServer` and `ToolStepServer` share: an environment per session, its limits, and its end."""

    config: StepServerConfig
    PRELOAD: ClassVar[tuple[str, ...]] = ()
    """Modules that every episode needs, imported once for all of them."""
    _processes: EpisodeProcesses = PrivateAttr()
    _ending: set["asyncio.Task[None]"] = PrivateAttr(default_factory=set)
    _is_sweeping: bool = PrivateAttr(default=False)

    @staticmethod
    def make_environment(task: dict[str, Any]) -> Any:
        """Return the environment of a task, which is the row without what the model is sent.

        It is called in the process of the episode. A function of a module without imports that it does not need starts
        fastest: `make_environment = staticmethod(my_module.make)`.
        """
        raise NotImplementedError("a step server needs `make_environment(task)`, or an `open_episode` of its own")

    @abstractmethod
    async def act(self, episode: Episode, response: NeMoGymResponse) -> dict[str, Any]:
        """Take the step that `response` asks for."""

    async def open_episode(self, task: dict[str, Any]) -> Episode:
        """Return where the episode of a task is played: in a process. Override it if some tasks need another place.

        That place has what an `Episode` has: `reset`, `step`, `end`, `steps` and `tools`.
        """
        return await self._processes.open()

    def setup_webserver(self) -> FastAPI:
        """Return the app, with processes that end when it does; none is started before an episode begins."""
        app = super().setup_webserver()
        self.session_state = SessionState(ttl_s=self.config.idle_timeout_s, on_drop=self._give_up)
        self._processes = EpisodeProcesses(
            type(self).make_environment,
            size=self.config.max_sessions,
            memory_bytes=self.config.session_memory_mb * 2**20,
            preload=self.PRELOAD,
        )
        self._processes.close_with(app)
        return app

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode."""
        await self.close_session(session_id)
        self._sweep()
        episode = await self.open_episode(metadata)
        self.session_state[session_id] = episode
        try:
            begun = await episode.reset(metadata, derive_seed(metadata), self.config.reset_timeout_s)
        except BaseException:
            await self.close_session(session_id)
            raise
        return begun["observation"], begun["info"] or {}

    async def step(self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str) -> StepResult:
        """Act. An episode that is over, or has failed, is closed."""
        try:
            episode: Episode = self.session_state[session_id]
        except UnknownSession as error:
            raise HTTPException(
                400,
                "no episode is under way in this session: it has ended, failed, or was idle for over "
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
        """Close the environment of a session, if it has one."""
        episode: Episode | None = self.session_state.pop(session_id, None)
        if episode is not None:
            await asyncio.shield(self._end(episode))

    def _end(self, episode: Episode) -> "asyncio.Task[None]":
        # A task of its own: the environment is closed even if nobody waits for it any more.
        ending = asyncio.create_task(episode.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return ending

    def _give_up(self, session_id: str, episode: Episode) -> None:
        self._end(episode)

    def _sweep(self) -> None:
        """Look for idle episodes from time to time, for as long as there are any."""
        if not self._is_sweeping:
            self._is_sweeping = True
            apart_s = min(_MOST_SWEEPS_APART_S, self.config.idle_timeout_s)
            asyncio.get_running_loop().call_later(apart_s, self._sweep_again)

    def _sweep_again(self) -> None:
        self._is_sweeping = False
        if len(self.session_state):
            self._sweep()


class TextStepServer(StepServer):
    """An environment that is told texts: `step(text)`."""

    def extract_action(self, text: str) -> str:
        """Return what the environment is told of a reply: all that is not thinking, unless this is overridden."""
        return grading.strip_thinking(text)

    async def act(self, episode: Episode, response: NeMoGymResponse) -> dict[str, Any]:
        """Tell the environment what the model said."""
        return await episode.step([self.extract_action(extract_text(response))], self.config.step_timeout_s)


class ToolStepServer(StepServer):
    """An environment whose actions are tool calls: `step(calls, text)`, with `calls` as `grading.FunctionCall`s.

    Its `tools` are functions as a model is given them. Its observations may hold items
    `{"type": "function_call_output", "call_id": ..., "output": ...}`. A call of no tool, or with arguments that are no
    JSON object, is answered here and does not reach it, unless `find_mistake` is overridden.
    """

    async def handle_reset(self, body: EnvResetRequest, request: Request) -> EnvResetResponse:
        """`POST /reset`."""
        begun = await super().handle_reset(body, request)
        episode: Episode = self.session_state[request.session[SESSION_ID_KEY]]
        begun.tools = episode.tools
        return begun

    def find_mistake(self, call: grading.FunctionCall, known: list[str]) -> str | None:
        """Return why the environment is not told of `call`, for the model to read; None lets the environment decide."""
        if call.name not in known:
            return f"Unknown tool {call.name!r}. Available tools: {', '.join(known) or 'none'}"
        return None if call.arguments is not None else f"Invalid tool call arguments: {call.error}"

    async def act(self, episode: Episode, response: NeMoGymResponse) -> dict[str, Any]:
        """Let the environment run the calls of the model."""
        known = [tool["name"] for tool in episode.tools]
        calls = grading.function_calls(response)
        refused = {call.call_id: error for call in calls if (error := self.find_mistake(call, known))}
        if refused and len(refused) == len(calls):
            episode.steps += 1
            result: dict[str, Any] = {"observation": None, "reward": 0.0, "terminated": False, "truncated": False}
        else:
            taken = [tuple(call) for call in calls if call.call_id not in refused]
            result = await episode.step([taken, extract_text(response)], self.config.step_timeout_s)
        answers, result["observation"] = _split_outputs(result["observation"])
        answers = {**answers, **{call_id: json.dumps({"error": error}) for call_id, error in refused.items()}}
        outputs = [tool_output(call.call_id, answers.get(call.call_id, "")) for call in calls]
        if outputs:
            result["info"] = {**(result.get("info") or {}), "tool_outputs": outputs}
        return result


def _split_outputs(observation: Observation) -> tuple[dict[str, str], Observation]:
    """Return the outputs of tools among an observation by their call, and the rest of it."""
    if not isinstance(observation, list):
        return {}, observation
    outputs = {item["call_id"]: item["output"] for item in observation if item.get("type") == "function_call_output"}
    rest = [item for item in observation if item.get("type") != "function_call_output"]
    return outputs, rest or None


def derive_seed(task: Mapping[str, Any]) -> int:
    """Return the seed of an episode: the task's `seed`, else one that follows from the task and its rollout's number.

    So a run can be repeated, repeats of a task with a seed begin alike, and repeats of one without differ.
    """
    if isinstance(seed := task.get("seed"), int):
        return seed
    own = {key: value for key, value in task.items() if not key.startswith("_ng_") and key not in _NOT_THE_TASK}
    place = [task.get(TASK_INDEX_KEY_NAME), task.get(ROLLOUT_INDEX_KEY_NAME)]
    digest = hashlib.sha256(json.dumps([own, place], sort_keys=True, default=repr).encode()).digest()
    return int.from_bytes(digest[:4], "big")
