# SPDX-License-Identifier: Apache-2.0
"""Base class of environments that a model plays step by step: `/reset`, `/step` and `/close`, with state per session.

The agent `gymnasium_agent` plays them. Every step returns a reward, so there is no `/verify`. Seeding is up to each
environment.
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
from nemo_gym._servers.mcp.protocol import MCPCatchall, MCPTool
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
"""What the model sees: a text, messages, or nothing."""
StepResult = tuple[Observation, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""

STEP_REQUEST_ID_KEY = "_ng_step_request_id"
_VERIFIER_METADATA_KEY = "verifier_metadata"


class EnvResetRequest(BaseRunRequest):
    """A task; other fields are for the environment."""

    model_config = ConfigDict(extra="allow")


class EnvResetResponse(BaseModel):
    """The start of an episode."""

    observation: Observation = None
    """What the model sees first, as a text or messages; None: nothing beyond the task's prompt."""
    tools: list[dict[str, Any]] | None = None
    """The tools of this episode, as function definitions; None: those of the task."""
    info: dict[str, Any] = Field(default_factory=dict)
    """For the agent; `supports_explicit_close` and `supports_step_idempotency` say what it may rely on."""


class EnvStepRequest(EnvResetRequest):
    """A task and the model's next action."""

    response: NeMoGymResponse


class EnvStepResponse(BaseModel):
    """The result of an action."""

    observation: Observation = None
    """What the model sees next, as a text or messages."""
    reward: float = 0.0
    """The reward of this step alone."""
    terminated: bool = False
    """Whether the episode reached its end."""
    truncated: bool = False
    """Whether the episode was cut off."""
    info: dict[str, Any] = Field(default_factory=dict)
    """The model gets `tool_outputs` as the outputs of its calls; the rest is recorded."""


class EnvCloseResponse(BaseModel):
    """Whether there was a session to close."""

    closed: bool


class SessionState(SessionStore[Any], MutableMapping[str, Any]):  # type: ignore[misc]  # `items` is a list
    """State by session id: a mapping of bounded size whose entries expire when unused."""


class GymnasiumServer(SimpleResourcesServer):
    """An environment: override `reset` and `step`, and keep their shared state in `session_state[session_id]`."""

    session_state: Any = Field(default_factory=SessionState)
    _steps: SessionStore[tuple[str, asyncio.Task[EnvStepResponse]]] = PrivateAttr(default_factory=SessionStore)

    @abstractmethod
    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; return the first observation and info."""

    @abstractmethod
    async def step(self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str) -> StepResult:
        """Take a step; return observation, reward, terminated, truncated and info."""

    async def close_session(self, session_id: str) -> None:
        """Free what a session holds; override this if it holds more than its state."""
        self.session_state.pop(session_id, None)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the endpoints of every environment."""
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
        """`POST /step`. A repeated request gets the first one's answer, without another step."""
        session_id = request.session[SESSION_ID_KEY]
        request_id = (body.model_extra or {}).get(STEP_REQUEST_ID_KEY)
        if not isinstance(request_id, str):
            return await self._step(body, session_id)
        known = self._steps.get(session_id)
        if known is None or known[0] != request_id:
            # A separate task, so that the step finishes even if the connection is lost.
            known = request_id, asyncio.create_task(self._step(body, session_id))
            self._steps[session_id] = known
        return await asyncio.shield(known[1])

    async def handle_close(self, request: Request) -> EnvCloseResponse:
        """`POST /close`. Closing a session twice is fine."""
        session_id = request.session[SESSION_ID_KEY]
        existed = session_id in self.session_state
        self._steps.pop(session_id)
        closing = self.close_session(session_id)
        if inspect.isawaitable(closing):  # an environment may override it with a plain function
            await closing
        return EnvCloseResponse(closed=existed)

    def mcp_tools(self, harvested: list[MCPTool], catchall: MCPCatchall | None = None) -> list[MCPTool]:
        """Return the environment's own tools: the agent resets and steps it, not the model through a tool."""
        return [tool for tool in harvested if tool.path not in ("/reset", "/step", "/close")]

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Refuse: the steps carry the rewards."""
        raise HTTPException(404, f"{self.config.name!r} scores each step; play it with `gymnasium_agent`")

    async def get_reverify_mode(self) -> str:
        """Return `unsupported`: the rewards came from a live session, so stored responses cannot be scored again."""
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
    """Return an entry of `info["tool_outputs"]`: the output, as text or JSON, of a call or of the call with this id."""
    if not isinstance(call, str):
        call = call.call_id
    if not isinstance(output, str):
        output = orjson.dumps(output).decode()
    return {"call_id": call, "output": output}


def metadata_of(body: EnvResetRequest) -> dict[str, Any]:
    """Return the environment's own fields of a task, including those inside `verifier_metadata`."""
    fields = {key: value for key, value in (body.model_extra or {}).items() if key != STEP_REQUEST_ID_KEY}
    nested = fields.get(_VERIFIER_METADATA_KEY)
    if isinstance(nested, dict):
        return {**nested, **fields}
    return fields
