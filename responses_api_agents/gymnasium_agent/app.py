# SPDX-License-Identifier: Apache-2.0
"""Runs a model in a reset/step environment: each reply of the model is an action with a reward.

The other side is a server on `resources_servers.gymnasium`. There is no verifier: the reward of a rollout is the sum of
its step rewards.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
from fastapi import Request
from pydantic import Field

from nemo_gym.errors import ServerCallError
from nemo_gym.global_config import NG_CUT_OFF_KEY
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseUsage,
    accumulate_response_usage,
)
from nemo_gym.server_utils import ServerClient, raise_for_status, takes_models
from nemo_gym.step_environments import STEP_REQUEST_ID_KEY, EnvResetResponse, EnvStepResponse, Observation
from responses_api_agents.simple_agent.app import (
    ModelAgent,
    ModelAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
    task_fields,
)
from responses_api_agents.simple_agent.loop import CookieJar, ModelT, make_user_message, parse_reply, to_items

LOG = logging.getLogger(__name__)

_STEP_ATTEMPTS = 3
_CLOSE_TIMEOUT_S = 30.0


class GymnasiumAgentConfig(ModelAgentConfig):
    """Config of the agent that acts step by step."""

    max_steps: int = Field(default=10, ge=1)
    """Maximum steps per rollout; a rollout that is not over by then is truncated."""


class GymnasiumAgentVerifyResponse(SimpleAgentVerifyResponse):
    """A finished episode."""

    terminated: bool
    """Whether the environment reached an end."""
    truncated: bool
    """Whether it was cut off before."""
    info: dict[str, Any]
    """What the environment returned with its last step."""
    steps: int
    """How many steps were taken."""
    step_rewards: list[float]
    """The reward of every step; their sum is the reward."""


@dataclass
class Episode:
    """What has happened in a rollout so far."""

    asked: list[Any]
    said: list[Any] = field(default_factory=list)
    usage: NeMoGymResponseUsage | None = None
    rewards: list[float] = field(default_factory=list)

    def add_reply(self, reply: NeMoGymResponse) -> None:
        """Add the model's turn."""
        self.said.extend(reply.output)
        self.usage = accumulate_response_usage(self.usage, reply.usage)

    def add_step(self, step: EnvStepResponse) -> None:
        """Add the environment's turn: its reward, and the outputs of the tools that the model called."""
        self.rewards.append(step.reward)
        self.said.extend(
            NeMoGymFunctionCallOutput(type="function_call_output", call_id=one["call_id"], output=one["output"])
            for one in step.info.get("tool_outputs") or ()
        )

    def conversation(self) -> list[Any]:
        """Return the conversation that the model sees."""
        return [*self.asked, *self.said]


class Environment:
    """One session with an environment server."""

    def __init__(self, client: ServerClient, server: str, task: dict[str, Any], cookies: CookieJar) -> None:
        self._client = client
        self._server = server
        self._task = task
        self._cookies = cookies
        self._info: dict[str, Any] = {}

    async def reset(self) -> EnvResetResponse:
        """Begin the episode."""
        begun = await self._post(EnvResetResponse, "/reset", {})
        self._info = begun.info
        return begun

    async def step(self, action: NeMoGymResponse) -> EnvStepResponse:
        """Act. Repeat a step that may have been taken only if the environment can tell that it is the same."""
        fields: dict[str, Any] = {"response": action if takes_models(self._client) else action.model_dump()}
        attempts = 1
        if self._info.get("supports_step_idempotency"):
            fields[STEP_REQUEST_ID_KEY] = uuid4().hex
            attempts = _STEP_ATTEMPTS
        for attempt in range(1, attempts + 1):
            try:
                return await self._post(EnvStepResponse, "/step", fields)
            except aiohttp.ClientConnectionError:
                if attempt == attempts:
                    raise
                LOG.warning("%r lost the connection during a step; attempt %d of %d", self._server, attempt, attempts)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def close(self) -> None:
        """Let the environment free its resources; the rollout is not lost if that fails."""
        if not self._info.get("supports_explicit_close"):
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                reply = await self._client.post(
                    server_name=self._server, url_path="/close", json=self._task, cookies=self._cookies.current
                )
                await raise_for_status(reply)
        except (aiohttp.ClientError, ServerCallError, TimeoutError) as error:
            LOG.warning("%r did not close a session: %s", self._server, error)

    async def _post(self, kind: type[ModelT], path: str, fields: dict[str, Any]) -> ModelT:
        reply = await self._client.post(
            server_name=self._server, url_path=path, json={**self._task, **fields}, cookies=self._cookies.current
        )
        await raise_for_status(reply)
        self._cookies.add(reply.cookies)
        return await parse_reply(kind, reply, self._server, path)


class GymnasiumAgent(ModelAgent):
    """Runs a model step by step in a reset/step environment. `/v1/responses` is one turn of the model alone."""

    config: GymnasiumAgentConfig

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> GymnasiumAgentVerifyResponse:  # type: ignore[override]
        """Run one rollout: reset, then reply and step in turn until the episode is over."""
        task = task_fields(body)
        cookies = CookieJar(self._resources_cookies(request.cookies))
        environment = Environment(self.server_client, self.config.resources_server.name, task, cookies)
        begun = await environment.reset()
        try:
            return await self._play(body, task, environment, begun)
        finally:
            await environment.close()

    async def _play(
        self, body: SimpleAgentRunRequest, task: dict[str, Any], environment: Environment, begun: EnvResetResponse
    ) -> GymnasiumAgentVerifyResponse:
        params = body.responses_create_params
        path = self.url_path_for_run("/v1/responses", body)
        model_cookies = CookieJar()
        if begun.tools is not None:
            params = params.model_copy(update={"tools": begun.tools})
        episode = Episode([*to_items(params.input), *_to_messages(begun.observation)])
        further: dict[str, Any] = {}
        notes = self._open_notes(body, self.rollout_id_from_run(body))
        for number in range(1, self.config.max_steps + 1):
            asked = params.model_copy(update={"input": episode.conversation()})
            reply = await self._ask(path, model_cookies, notes, asked)
            episode.add_reply(reply)
            step = await environment.step(reply)
            episode.add_step(step)
            if step.terminated or step.truncated or reply.incomplete_details is not None:
                break
            if number == self.config.max_steps:
                further[NG_CUT_OFF_KEY] = "max_steps"
                break
            episode.said.extend(_to_messages(step.observation))
        reply.output = episode.said
        reply.usage = episode.usage
        if notes is not None:
            further.update(notes.as_row_fields(episode.asked, reply))
        return GymnasiumAgentVerifyResponse.model_validate(
            {
                **task,
                "responses_create_params": params.model_copy(update={"input": episode.asked}),
                "response": reply,
                "reward": sum(episode.rewards),
                "steps": len(episode.rewards),
                "step_rewards": episode.rewards,
                "terminated": step.terminated,
                "truncated": step.truncated or not step.terminated,
                "info": step.info,
                **further,
            }
        )


def _to_messages(observation: Observation) -> list[Any]:
    if isinstance(observation, list):
        return [NeMoGymEasyInputMessage.model_validate({"type": "message", **message}) for message in observation]
    return [make_user_message(observation)] if observation else []


if __name__ == "__main__":
    GymnasiumAgent.run_webserver()
