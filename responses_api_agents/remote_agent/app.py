# SPDX-License-Identifier: Apache-2.0
"""An agent that someone else hosts: any endpoint that speaks `POST /v1/responses` runs in a resources server.

The remote side may run its own tools; calls that it leaves unanswered are run here, on the resources server. A
rollout that fails is a result with a named failure, never an HTTP error: the remote side is not under our control.
"""

import asyncio
import functools
import logging
import time
from typing import Any
from uuid import uuid4

from aiohttp import ClientResponseError, ClientTimeout
from fastapi import Request, Response
from pydantic import PositiveFloat, PositiveInt, PrivateAttr

from nemo_gym.base_responses_api_agent import Body
from nemo_gym.errors import RolloutFailure
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY, NG_TERMINAL_KEY
from nemo_gym.server_utils import raise_for_status, request
from responses_api_agents.simple_agent.app import (
    EnvironmentAgent,
    EnvironmentAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
    find_notes,
    task_fields,
)
from responses_api_agents.simple_agent.loop import CookieJar, Toolbox, ToolErrors, play, read_model_reply

LOG = logging.getLogger(__name__)

REMOTE_AGENT_ERROR = "remote_agent_error"
FAILURE_MESSAGE_KEY = "_ng_failure_message"
_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})


class RemoteAgentConfig(EnvironmentAgentConfig):
    """Config of an agent that is hosted elsewhere."""

    agent_base_url: str
    """URL of the agent, without `/v1/responses`."""
    concurrency: PositiveInt = 32
    """Maximum rollouts at once; others wait, and their deadline does not run yet."""
    remote_responses_timeout_secs: PositiveFloat = 1800.0
    """Deadline per call to the remote agent."""
    run_timeout_secs: PositiveFloat = 2100.0
    """Deadline per rollout."""
    max_steps: int | None = None
    """Maximum calls to the remote agent per rollout; None or 0: no limit."""
    tool_errors: ToolErrors = "report"
    """A tool that crashes (status 500 or above): `report` it in the row, or `fail` the rollout at once."""


class RemoteAgent(EnvironmentAgent):
    """Runs a remote agent against the tools of a resources server."""

    config: RemoteAgentConfig
    _slots: asyncio.Semaphore = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._slots = asyncio.Semaphore(self.config.concurrency)

    async def responses(  # type: ignore[override]
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """Return everything the remote agent said and the tools answered."""
        tool_cookies = CookieJar(self._resources_cookies(request.cookies))
        remote_cookies = CookieJar()
        server = self.config.resources_server.name
        tool_errors = self.config.tool_errors
        notes = find_notes(response)
        toolbox = Toolbox(
            self.server_client,
            server,
            body.tools,
            tool_cookies,
            tool_errors=tool_errors,
            note_call=None if notes is None else notes.note_tool_call,
        )
        ask = functools.partial(self._ask_remote, remote_cookies, toolbox)
        answer = await play(body, ask, toolbox.run, self.config.max_steps)
        toolbox.note_crashes_on(answer)
        tool_cookies.set_on(response)
        return answer

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:  # type: ignore[override]
        """Run one rollout. Whatever goes wrong in it becomes its result."""
        async with self._slots:
            try:
                async with asyncio.timeout(self.config.run_timeout_secs):
                    return await super().run(request, body)
            except Exception as error:
                LOG.warning("a rollout of %r failed", self.config.agent_base_url, exc_info=error)
                # The error of our own deadline has no text.
                return make_failure_row(
                    body, error, str(error) or f"no result within {self.config.run_timeout_secs:g} s"
                )

    async def _ask_remote(
        self, cookies: CookieJar, toolbox: Toolbox, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        """Call the remote agent once."""
        server = self.config.agent_base_url.rstrip("/").removesuffix("/v1")
        path = "/v1/responses"
        deadline = ClientTimeout(total=self.config.remote_responses_timeout_secs)
        reply = await request("POST", f"{server}{path}", json=body, cookies=cookies.current, timeout=deadline)
        await raise_for_status(reply)
        cookies.add(reply.cookies)
        answer = await read_model_reply(reply, server, path)
        toolbox.collect_crashes(answer)
        return answer


def make_failure_row(body: SimpleAgentRunRequest, error: Exception, reason: str) -> SimpleAgentVerifyResponse:
    """Return the result of a rollout that ended with `error`."""
    named = REMOTE_AGENT_ERROR
    message = f"{type(error).__name__}: {reason}"
    if isinstance(error, RolloutFailure):  # the environment's failure, not the remote side's
        named = error.kind
        message = error.message
    routing: dict[str, Any] = {NG_FAILURE_CLASS_KEY: named, FAILURE_MESSAGE_KEY: message}
    if is_terminal(error):
        routing[NG_TERMINAL_KEY] = True
    return SimpleAgentVerifyResponse.model_validate(
        {**task_fields(body), "response": _make_empty_response(message), "reward": 0.0, **routing}
    )


def is_terminal(error: Exception) -> bool:
    """Return whether another attempt would end the same way: the request itself was refused."""
    if not isinstance(error, ClientResponseError):
        return False
    return 400 <= error.status < 500 and error.status not in _WORTH_ANOTHER_TRY


def _make_empty_response(message: str) -> dict[str, Any]:
    return {
        "id": f"resp_{uuid4().hex}",
        "created_at": time.time(),
        "model": REMOTE_AGENT_ERROR,
        "object": "response",
        "status": "failed",
        "error": {"code": REMOTE_AGENT_ERROR, "message": message},
        "output": [],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
    }


if __name__ == "__main__":
    RemoteAgent.run_webserver()
