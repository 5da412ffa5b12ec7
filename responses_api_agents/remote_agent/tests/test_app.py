# SPDX-License-Identifier: Apache-2.0
"""A remote agent behind a real socket, played in a resources server in process."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fastapi import FastAPI
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.openai_utils import NeMoGymFunctionCallOutput, NeMoGymResponse
from nemo_gym.server_utils import close_global_aiohttp_client
from nemo_gym.testing import build_server, reply, running, tool_call
from responses_api_agents.remote_agent.app import RemoteAgent

ROW: dict[str, Any] = {"responses_create_params": {"input": "Ring."}, "colour": "green"}
Reply = Callable[[dict[str, Any]], Awaitable[web.StreamResponse]]


class Bells(SimpleResourcesServer):
    """Counts how often the bell was rung; twice is right."""

    config: BaseResourcesServerConfig
    _rung: int = PrivateAttr(default=0)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/ring")(self.ring)
        return app

    async def ring(self) -> dict[str, int]:
        self._rung += 1
        return {"rung": self._rung}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(self._rung))


class Remote:
    """Someone else's agent: answers with `answer`, keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer: Reply = says(reply("Hi."))
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        return await self.answer(self.requests[-1])


def says(*replies: NeMoGymResponse) -> Reply:
    """These replies, one a call."""
    script = list(replies)

    async def answer(_: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(text=script.pop(0).model_dump_json())

    return answer


def refuses(status: int, text: str = "no") -> Reply:
    async def answer(_: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    return answer


@pytest.fixture
async def remote() -> AsyncIterator[Remote]:
    agent, app = Remote(), web.Application()
    app.router.add_post("/v1/responses", agent.handle)
    async with TestServer(app) as server:
        agent.url = str(server.make_url("/"))
        yield agent
        await close_global_aiohttp_client()


def config(url: str, **fields: Any) -> dict[str, Any]:
    return {"resources_server": {"type": "resources_servers", "name": "world"}, "agent_base_url": url, **fields}


async def run_row(url: str, *, world: Any = Bells, **fields: Any) -> dict[str, Any]:
    async with running(world=world, agent=(RemoteAgent, config(url, **fields))) as client:
        response = await client.post("agent", "/run", json=ROW)
        assert response.status == 200
        return await response.json()


async def test_calls_that_the_remote_agent_leaves_open_are_run_here(remote):
    remote.answer = says(reply(tool_call("ring", call_id="c1")), reply("It rang."))
    result = await run_row(remote.url)
    assert result["reward"] == 1.0
    assert remote.requests[1]["input"][-1] == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": '{"rung":1}',
    }
    assert [item["type"] for item in result["response"]["output"]] == [
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_calls_that_the_remote_agent_answered_itself_are_left_alone(remote):
    own = NeMoGymFunctionCallOutput(call_id="c1", output="done")
    remote.answer = says(reply(tool_call("ring", call_id="c1"), own, "It rang."))
    result = await run_row(remote.url)
    assert result["reward"] == 0.0
    assert "_ng_failure_class" not in result
    assert len(remote.requests) == 1


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_may_end_in_v1(remote, suffix):
    result = await run_row(remote.url.rstrip("/") + suffix)
    assert "_ng_failure_class" not in result


async def test_max_steps_bounds_the_calls_of_the_remote_agent(remote):
    remote.answer = says(*(reply(tool_call("ring")) for _ in range(2)))
    assert (await run_row(remote.url, max_steps=2))["reward"] == 2.0


@pytest.mark.parametrize(
    ("status", "is_terminal"), [(400, True), (401, True), (404, True), (422, True), (429, False), (500, False)]
)
async def test_an_error_status_is_a_failed_rollout_and_a_refusal_is_final(remote, status, is_terminal):
    remote.answer = refuses(status, "go away")
    result = await run_row(remote.url)
    assert (result["reward"], result["_ng_failure_class"]) == (0.0, "remote_agent_error")
    assert result.get("_ng_failure_terminal", False) is is_terminal
    assert "go away" in result["_ng_failure_message"]
    assert result["colour"] == "green"
    assert result["response"]["output"] == []


async def test_a_reply_that_is_no_response_is_a_failed_rollout(remote):
    remote.answer = refuses(200, "<html>")
    result = await run_row(remote.url)
    assert result["_ng_failure_class"] == "remote_agent_error"
    assert "<html>" in result["_ng_failure_message"]
    assert "_ng_failure_terminal" not in result


async def hangs(_: dict[str, Any]) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


@pytest.mark.parametrize("limit", ["remote_responses_timeout_secs", "run_timeout_secs"])
async def test_a_remote_agent_that_hangs_is_given_up_at_the_deadline(remote, limit):
    remote.answer = hangs
    result = await run_row(remote.url, **{limit: 0.05})
    assert result["_ng_failure_class"] == "remote_agent_error"
    assert "within 0.05 s" in result["_ng_failure_message"]


async def test_a_verifier_that_breaks_is_a_failed_rollout_too(remote):
    class Broken(Bells):
        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            raise ZeroDivisionError("no bell")

    result = await run_row(remote.url, world=Broken)
    assert result["_ng_failure_class"] == "remote_agent_error"
    assert "no bell" in result["_ng_failure_message"]


class CrackedBells(Bells):
    async def ring(self) -> dict[str, int]:
        raise ZeroDivisionError("the bell is cracked")


async def test_crashes_here_and_those_of_every_turn_of_the_remote_side_are_in_the_result(remote):
    inner = {"_ng_tool_errors": [{"tool": "inner", "status": 500, "message": "boom"}]}
    remote.answer = says(reply(tool_call("ring"), **inner), reply("Silence.", _ng_cut_off="max_steps"))
    result = await run_row(remote.url, world=CrackedBells)
    assert [crash["tool"] for crash in result["_ng_tool_errors"]] == ["inner", "ring"]
    assert result["_ng_cut_off"] == "max_steps"


async def test_a_crash_that_is_to_fail_the_rollout_is_a_named_failure(remote):
    remote.answer = says(reply(tool_call("ring")))
    result = await run_row(remote.url, world=CrackedBells, tool_errors="fail")
    assert result["_ng_failure_class"] == "tool_crashed"
    assert "the bell is cracked" in result["_ng_failure_message"]


async def test_no_more_rollouts_than_allowed_are_with_the_remote_agent_at_once(remote):
    at_once, most = 0, 0

    async def counts(_: dict[str, Any]) -> web.StreamResponse:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        for _ in range(20):
            await asyncio.sleep(0)
        at_once -= 1
        return web.json_response(text=reply("Hi.").model_dump_json())

    remote.answer = counts
    async with running(world=Bells, agent=(RemoteAgent, config(remote.url, concurrency=2))) as client:
        await asyncio.gather(*(client.post("agent", "/run", json=ROW) for _ in range(6)))
    assert most == 2


async def test_responses_gives_the_remote_agents_answer(remote):
    async with running(world=Bells, agent=(RemoteAgent, config(remote.url))) as client:
        answer = json.loads(await (await client.post("agent", "/v1/responses", json={"input": "Hi"})).read())
    assert answer["output"][0]["content"][0]["text"] == "Hi."


def test_the_limits_have_the_documented_defaults():
    given = build_server(RemoteAgent, **config("http://agent")).config
    assert (given.concurrency, given.remote_responses_timeout_secs, given.run_timeout_secs) == (32, 1800, 2100)
    assert given.max_steps is None
