# SPDX-License-Identifier: Apache-2.0
"""One turn of the model, then the verifier; no session before it."""

from typing import Any

import pytest
from fastapi import Request
from pydantic import ConfigDict, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.testing import agent_config, build_server, reply, running, scripted_model, tool_call
from responses_api_agents.tool_simulation_agent.app import ToolSimulationAgent

REFS = agent_config("world")
ROW: dict[str, Any] = {"responses_create_params": {"input": "Book it."}, "expected": "book"}


class BookingVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")
    expected: str


class Bookings(SimpleResourcesServer):
    """Rewards the first call if it is the expected one; a session must not be asked for."""

    config: BaseResourcesServerConfig
    _cookies: list[dict[str, str]] = PrivateAttr(default_factory=list)

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        raise AssertionError("the agent seeded a session")

    async def verify(self, body: BookingVerifyRequest, request: Request) -> BaseVerifyResponse:
        self._cookies.append(dict(request.cookies))
        names = [call.name for call in grading.function_calls(body.response)]
        return BaseVerifyResponse(**body.model_dump(), reward=float(names[:1] == [body.expected]))


@pytest.mark.parametrize(("called", "reward"), [("book", 1.0), ("cancel", 0.0)])
async def test_the_reply_is_verified_without_session_or_cookies(called, reward):
    world = build_server(Bookings, name="world")
    model = scripted_model(reply(tool_call(called)))
    async with running(world=world, policy_model=model, agent=(ToolSimulationAgent, REFS)) as client:
        result = await (await client.post("agent", "/run", json=ROW)).json()
    assert result["reward"] == reward
    assert world._cookies == [{}]
    assert len(model.requests) == 1


async def test_skipped_verification_gives_the_configured_reward():
    config = {**REFS, "skip_verification": True, "skip_verification_reward": 0.5}
    async with running(
        world=Bookings, policy_model=scripted_model("Hi."), agent=(ToolSimulationAgent, config)
    ) as client:
        result = await (await client.post("agent", "/run", json=ROW)).json()
    assert (result["reward"], result["verification_skipped"], result["expected"]) == (0.5, True, "book")
