# SPDX-License-Identifier: Apache-2.0
"""An environment on the base server, called as agents call it."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.mcp_auto_exposure import install_auto_exposure
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import build_server, reasoning, reply, running, tool_call
from resources_servers.gymnasium import GymnasiumServer, extract_text, tool_output

ROW: dict[str, Any] = {"responses_create_params": {"input": "Count."}}


class Counter(GymnasiumServer):
    """Counts the steps of a session, and tells what it was given."""

    config: BaseResourcesServerConfig
    _waiting: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)
    _gate: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str | None, dict[str, Any]]:
        self.session_state[session_id] = 0
        return "Count.", {"metadata": metadata}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str
    ) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        self.session_state[session_id] += 1
        if extract_text(action) == "wait":
            self._waiting.set()
            await self._gate.wait()
        return f"{self.session_state[session_id]}", 1.0, False, False, {"metadata": metadata}


class Session:
    """One caller that keeps its cookies."""

    def __init__(self, client: ServerClient) -> None:
        self._client, self._cookies = client, {}

    async def post(self, path: str, **fields: Any) -> dict[str, Any]:
        response = await self._client.post("world", path, json={**ROW, **fields}, cookies=self._cookies)
        assert response.ok, await response.text()
        self._cookies = response.cookies
        return await response.json()

    async def step(self, text: str = "next", **fields: Any) -> dict[str, Any]:
        return await self.post("/step", response=reply(text).model_dump(), **fields)


async def test_an_episode_keeps_its_state_between_steps():
    async with running(world=Counter) as client:
        session = Session(client)
        begun = await session.post("/reset")
        first, second = await session.step(), await session.step()
    assert begun["observation"] == "Count."
    assert (first["observation"], second["observation"]) == ("1", "2")
    assert set(second) == {"observation", "reward", "terminated", "truncated", "info"}


def test_a_model_cannot_reset_or_step_by_a_tool_call():
    class WithTool(Counter):
        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()

            @app.post("/look")
            async def look() -> str:
                return "nothing"

            return app

    server = build_server(WithTool, name="world")
    assert set(install_auto_exposure(server, server.setup_webserver())) == {"look"}


async def test_sessions_do_not_see_each_other():
    async with running(world=Counter) as client:
        one, other = Session(client), Session(client)
        await one.post("/reset")
        await other.post("/reset")
        await one.step()
        assert (await other.step())["observation"] == "1"


async def test_metadata_are_the_fields_of_the_row_and_of_its_verifier_metadata():
    fields = {"colour": "green", "verifier_metadata": {"size": 3}}
    async with running(world=Counter) as client:
        session = Session(client)
        begun = await session.post("/reset", **fields)
        stepped = await session.step(_ng_step_request_id="a", **fields)
    assert begun["info"]["metadata"] == stepped["info"]["metadata"] == {**fields, "size": 3}


async def test_reset_tells_what_an_agent_may_rely_on():
    async with running(world=Counter) as client:
        info = (await Session(client).post("/reset"))["info"]
    assert info["supports_explicit_close"] is True
    assert info["supports_step_idempotency"] is True


async def test_a_step_that_is_asked_for_again_is_not_taken_again():
    async with running(world=Counter) as client:
        session = Session(client)
        await session.post("/reset")
        first = await session.step(_ng_step_request_id="a")
        again = await session.step(_ng_step_request_id="a")
        after = await session.step(_ng_step_request_id="b")
    assert again == first
    assert after["observation"] == "2"


async def test_a_step_that_is_asked_for_again_while_it_runs_is_taken_once():
    world = build_server(Counter, name="world")
    async with running(world=world) as client:
        session = Session(client)
        await session.post("/reset")
        both = [asyncio.create_task(session.step("wait", _ng_step_request_id="a")) for _ in range(2)]
        await world._waiting.wait()
        world._gate.set()
        first, second = await asyncio.gather(*both)
    assert first == second
    assert first["observation"] == "1"


async def test_the_same_request_id_in_a_new_episode_is_a_new_step():
    async with running(world=Counter) as client:
        session = Session(client)
        for _ in range(2):
            await session.post("/reset")
            await session.step(_ng_step_request_id="a")
            assert (await session.step())["observation"] == "2"


async def test_closing_frees_the_session_and_may_be_repeated():
    world = build_server(Counter, name="world")
    async with running(world=world) as client:
        session = Session(client)
        await session.post("/reset")
        assert await session.post("/close") == {"closed": True}
        assert await session.post("/close") == {"closed": False}
    assert len(world.session_state) == 0


async def test_an_environment_may_close_its_sessions_in_a_plain_function():
    class Plain(Counter):
        def close_session(self, session_id: str) -> None:  # type: ignore[override]
            del self.session_state[session_id]

    async with running(world=Plain) as client:
        session = Session(client)
        await session.post("/reset")
        assert await session.post("/close") == {"closed": True}


async def test_there_is_nothing_to_verify():
    async with running(world=Counter) as client:
        response = await client.post("world", "/verify", json={**ROW, "response": reply("1").model_dump()})
        mode = await (await client.get("world", "/reverify_mode")).json()
    assert response.status == 404
    assert "gymnasium_agent" in await response.text()
    assert mode == "unsupported"


def test_the_state_is_a_mapping():
    state = build_server(Counter).session_state
    assert state.setdefault("a", {"n": 1}) == {"n": 1}
    state.update(b=2)
    assert dict(state.items()) == {"a": {"n": 1}, "b": 2}
    with pytest.raises(KeyError):
        state["c"]


def test_the_text_of_an_action_is_what_the_assistant_wrote():
    assert extract_text(reply(reasoning("hm"), "hit")) == "hit"
    assert extract_text(reply(tool_call("hit"))) == ""


def test_a_tool_output_names_its_call():
    call = tool_call("look", call_id="c1")
    assert tool_output(call, {"n": 1}) == tool_output("c1", '{"n":1}') == {"call_id": "c1", "output": '{"n":1}'}
    assert GymnasiumServer.tool_output(call, "x") == {"call_id": "c1", "output": "x"}
