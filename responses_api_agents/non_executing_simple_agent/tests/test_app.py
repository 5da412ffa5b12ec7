# SPDX-License-Identifier: Apache-2.0
"""One turn of the model, no tools, then the verifier of the same session."""

from typing import Any

from fastapi import FastAPI, Request
from pydantic import PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.testing import agent_config, reply, running, scripted_model, tool_call
from responses_api_agents.non_executing_simple_agent.app import NonExecutingSimpleAgent

REFS = agent_config("world")
ROW: dict[str, Any] = {"responses_create_params": {"input": "Press the button."}}


class Buttons(SimpleResourcesServer):
    """Rewards the call of `press`, which must never be run, within the seeded session."""

    config: BaseResourcesServerConfig
    _sessions: set[str] = PrivateAttr(default_factory=set)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/press")(self.press)
        return app

    async def seed_session(self, body: BaseSeedSessionRequest, request: Request) -> BaseSeedSessionResponse:
        self._sessions.add(request.session[SESSION_ID_KEY])
        return BaseSeedSessionResponse()

    async def press(self) -> None:
        raise AssertionError("the agent ran a tool")

    async def verify(self, body: BaseVerifyRequest, request: Request) -> BaseVerifyResponse:
        assert request.session[SESSION_ID_KEY] in self._sessions
        names = [call.name for call in grading.function_calls(body.response)]
        return BaseVerifyResponse(**body.model_dump(), reward=float(names == ["press"]))


async def test_the_calls_of_one_reply_are_verified_and_not_run():
    model = scripted_model(reply(tool_call("press")))
    async with running(world=Buttons, policy_model=model, agent=(NonExecutingSimpleAgent, REFS)) as client:
        result = await (await client.post("agent", "/run", json=ROW)).json()
    assert result["reward"] == 1.0
    assert [item["type"] for item in result["response"]["output"]] == ["function_call"]
    assert len(model.requests) == 1


async def test_a_reply_without_the_call_earns_nothing():
    async with running(
        world=Buttons, policy_model=scripted_model("I will not."), agent=(NonExecutingSimpleAgent, REFS)
    ) as client:
        assert (await (await client.post("agent", "/run", json=ROW)).json())["reward"] == 0.0


async def test_skipped_verification_gives_the_configured_reward():
    config = {**REFS, "skip_verification": True, "skip_verification_reward": 0.5}
    async with running(
        world=Buttons, policy_model=scripted_model("Hi."), agent=(NonExecutingSimpleAgent, config)
    ) as client:
        result = await (await client.post("agent", "/run", json=ROW)).json()
    assert (result["reward"], result["verification_skipped"]) == (0.5, True)
