# SPDX-License-Identifier: Apache-2.0
"""The base of environments that a model plays step by step: `/reset`, `/step` and `/close`, with state per session.

The counterpart of the agent `gymnasium_agent`. Rewards come with the steps, so there is no `/verify`; randomness and
its seed are each environment's own.
"""

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import MutableMapping
from typing import Any

import orjson
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym import grading
from nemo_gym._mcp.protocol import MCPCatchall, MCPTool
from nemo_gym.base_resources_server import (
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseFunctionToolCall
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.session_store import SessionStore

Observation = str | list[dict[str, Any]] | None
"""What the model is told: a text, messages, or nothing."""
StepResult = tuple[Observation, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""

STEP_REQUEST_ID_KEY = "_ng_step_request_id"
_VERIFIER_METADATA_KEY = "verifier_metadata"


class EnvResetRequest(BaseRunRequest):
    """A task; the environment's own fields are carried along."""

    model_config = ConfigDict(extra="allow")


class EnvResetResponse(BaseModel):
    """How an episode begins."""

    observation: Observation = None
    """What the model is told first: a text, or messages. None: its task says it all."""
    tools: list[dict[str, Any]] | None = None
    """The tools of this episode, as functions; None: those of the task."""
    info: dict[str, Any] = Field(default_factory=dict)
    """For the agent; `supports_explicit_close` and `supports_step_idempotency` tell what it may rely on."""


class EnvStepRequest(EnvResetRequest):
    """A task and the model's next action."""

    response: NeMoGymResponse


class EnvStepResponse(BaseModel):
    """What an action led to."""

    observation: Observation = None
    """What the model is told next: a text, or messages."""
    reward: float = 0.0
    """The reward of this step alone."""
    terminated: bool = False
    """Whether the environment reached an end."""
    truncated: bool = False
    """Whether it was cut off."""
    info: dict[str, Any] = Field(default_factory=dict)
    """`tool_outputs` are given to the model as the outputs of its calls; the rest is for the record."""


class EnvCloseResponse(BaseModel):
    """Whether there was a session to close."""

    closed: bool


class SessionState(SessionStore[Any], MutableMapping[str, Any]):  # type: ignore[misc]  # `items` is a list
    """State by session id: a mapping whose entries expire when unused, and whose size is bounded."""


class GymnasiumServer(SimpleResourcesServer):
    """An environment: override `reset` and `step`, and keep what they share in `session_state[session_id]`."""

    session_state: Any = Field(default_factory=SessionState)
    _steps: SessionStore[tuple[str, asyncio.Task[EnvStepResponse]]] = PrivateAttr(default_factory=SessionStore)

    @abstractmethod
    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode: the first observation, and info."""

    @abstractmethod
    async def step(self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str) -> StepResult:
        """Act: observation, reward, terminated, truncated, info."""

    async def close_session(self, session_id: str) -> None:
        """Free what a session holds; override where that is more than its state."""
        self.session_state.pop(session_id, None)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the endpoints that every environment has."""
        app = super().setup_webserver()
        app.post("/reset")(self.handle_reset)
        app.post("/step")(self.handle_step)
        app.post("/close")(self.handle_close)
        return app

    async def handle_reset(self, body: EnvResetRequest, request: Request) -> EnvResetResponse:
        """`POST /reset`."""
        session_id = request.session[SESSION_ID_KEY]
        self._steps.pop(session_id)
        observation, info = await self.reset(metadata_of(body), session_id)
        return EnvResetResponse(
            observation=observation,
            info={"supports_explicit_close": True, "supports_step_idempotency": True, **info},
        )

    async def handle_step(self, body: EnvStepRequest, request: Request) -> EnvStepResponse:
        """`POST /step`. A request that comes again is given the answer of the first, and no step is taken."""
        session_id = request.session[SESSION_ID_KEY]
        request_id = (body.model_extra or {}).get(STEP_REQUEST_ID_KEY)
        if not isinstance(request_id, str):
            return await self._step(body, session_id)
        known = self._steps.get(session_id)
        if known is None or known[0] != request_id:
            # A task of its own: the step goes on even if the connection that asked for it is gone.
            known = request_id, asyncio.create_task(self._step(body, session_id))
            self._steps[session_id] = known
        return await asyncio.shield(known[1])

    async def handle_close(self, request: Request) -> EnvCloseResponse:
        """`POST /close`. Closing what is closed is no error."""
        session_id = request.session[SESSION_ID_KEY]
        existed = session_id in self.session_state
        self._steps.pop(session_id)
        closing = self.close_session(session_id)
        if inspect.isawaitable(closing):  # an environment may close its sessions in a plain function
            await closing
        return EnvCloseResponse(closed=existed)

    def mcp_tools(self, harvested: list[MCPTool], catchall: MCPCatchall | None = None) -> list[MCPTool]:
        """Return the tools that an environment adds: who plays it resets and steps, not the model by a tool call."""
        return [tool for tool in harvested if tool.path not in ("/reset", "/step", "/close")]

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """There is nothing to verify: steps carry the rewards."""
        raise HTTPException(404, f"{self.config.name!r} scores each step; play it with `gymnasium_agent`")

    async def get_reverify_mode(self) -> str:
        """Stored responses cannot be scored again: their rewards came from a live session."""
        return ReverifyMode.UNSUPPORTED.value

    @staticmethod
    def tool_output(call: NeMoGymResponseFunctionToolCall | str, output: Any) -> dict[str, str]:
        """Return an entry of `info["tool_outputs"]`."""
        return tool_output(call, output)

    @staticmethod
    def extract_text(response: NeMoGymResponse) -> str:
        """Return what the assistant wrote in `response`."""
        return extract_text(response)

    async def _step(self, body: EnvStepRequest, session_id: str) -> EnvStepResponse:
        metadata = metadata_of(body)
        observation, reward, terminated, truncated, info = await self.step(body.response, metadata, session_id)
        return EnvStepResponse(
            observation=observation, reward=reward, terminated=terminated, truncated=truncated, info=info
        )


def extract_text(response: NeMoGymResponse) -> str:
    """Return what the assistant wrote in `response`; empty if it only thought or called tools."""
    return grading.assistant_text(response)


def tool_output(call: NeMoGymResponseFunctionToolCall | str, output: Any) -> dict[str, str]:
    """Return an entry of `info["tool_outputs"]`: the output of a call, or of the call with this id, as text or JSON."""
    text = output if isinstance(output, str) else orjson.dumps(output).decode()
    return {"call_id": call if isinstance(call, str) else call.call_id, "output": text}


def metadata_of(body: EnvResetRequest) -> dict[str, Any]:
    """Return the fields of a task that are the environment's own; those inside `verifier_metadata` are among them."""
    fields = {key: value for key, value in (body.model_extra or {}).items() if key != STEP_REQUEST_ID_KEY}
    nested = fields.get(_VERIFIER_METADATA_KEY)
    return {**nested, **fields} if isinstance(nested, dict) else fields
