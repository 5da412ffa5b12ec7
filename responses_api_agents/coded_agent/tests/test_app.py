# SPDX-License-Identifier: Apache-2.0
"""Agents in Python: what their code is given, what is kept of their calls, and how they fail."""

import asyncio
import copy
import threading
from collections import Counter
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from fastapi import FastAPI, HTTPException, Request
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel, PrivateAttr

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.errors import RolloutFailure
from nemo_gym.grading import last_assistant_text
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from nemo_gym.session_client import SessionClient
from nemo_gym.testing import agent_config
from responses_api_agents.coded_agent import AgentRollout, CodedAgent
from responses_api_models.replay_model.app import ReplayModel
from tests.support.served_run import serve_run
from tests.support.small_servers import free_port

TOOL = {
    "type": "function",
    "name": "add",
    "description": "Add to the sum.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    "strict": True,
}
ROW = {
    "responses_create_params": {
        "input": [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": "Make it 5."}],
        "tools": [TOOL],
        "temperature": 0.5,
        "max_output_tokens": 99,
    },
    "target": 5,
}
SCRIPT = [
    {"tool_calls": [{"name": "add", "arguments": {"number": 2}}]},
    {"tool_calls": [{"name": "add", "arguments": {"number": 3}}]},
    "Done.",
]


class AddRequest(BaseModel):
    number: int


class SumRequest(BaseVerifyRequest):
    target: int


class SumServer(SimpleResourcesServer):
    """A sum for each session; right is the one that the task asks for, with the word `Done`."""

    _sums: Counter[str] = PrivateAttr(default_factory=Counter)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        return app

    async def add(self, request: Request, body: AddRequest) -> str:
        """Add to the sum."""
        if body.number == 13:
            raise HTTPException(500, "unlucky")
        self._sums[request.session[SESSION_ID_KEY]] += body.number
        return f"{self._sums[request.session[SESSION_ID_KEY]]}"

    async def verify(self, request: Request, body: SumRequest) -> BaseVerifyResponse:  # type: ignore[override]
        is_right = self._sums[request.session[SESSION_ID_KEY]] == body.target and "Done" in last_assistant_text(
            body.response
        )
        return BaseVerifyResponse(**body.model_dump(), reward=float(is_right))


class Agent(CodedAgent):
    """Plays what a test tells it to."""

    async def play(self, task: dict[str, Any], rollout: AgentRollout) -> str | None:
        raise NotImplementedError


async def play_chat(task: dict[str, Any], rollout: AgentRollout) -> str | None:
    """Play with a client of OpenAI's package."""
    client, asked = rollout.openai(), rollout.chat_params
    while True:
        said = (await client.chat.completions.create(**asked)).choices[0].message
        asked["messages"].append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            return said.content
        for call in said.tool_calls:
            told = await rollout.call_tool(call.function.name, call.function.arguments)
            asked["messages"].append({"role": "tool", "tool_call_id": call.id, "content": told})


async def ask(rollout: AgentRollout, text: str) -> str | None:
    """Ask one thing, beside everything else."""
    messages: Any = [{"role": "user", "content": text}]
    answer = await rollout.openai().chat.completions.create(model=rollout.model, messages=messages)
    return answer.choices[0].message.content


async def run(monkeypatch, how, *, replies: list[Any] | None = None, rows: int = 1, world=SumServer, **config) -> Any:
    """Play rollouts as `how` says; return the row, or the rows if there are several."""
    monkeypatch.setattr(Agent, "play", lambda self, task, rollout: how(task, rollout))
    if asyncio.iscoroutinefunction(how):

        async def play(self: Agent, task: dict[str, Any], rollout: AgentRollout) -> str | None:
            return await how(task, rollout)

        monkeypatch.setattr(Agent, "play", play)
    servers: dict[str, Any] = {
        "world": world,
        "policy_model": (ReplayModel, {"replies": replies or SCRIPT}),
        "agent": (Agent, agent_config("world", **config)),
    }
    async with serve_run(monkeypatch, **servers) as served:

        async def play_one(number: int) -> Any:
            row = {**ROW, "_ng_task_index": number, "_ng_rollout_index": 0}
            answer = await served.client.post("agent", "/run", json=row)
            assert answer.status == 200, (answer.headers.get("x-nemo-gym-failure"), await answer.text())
            return await answer.json()

        played = await asyncio.gather(*map(play_one, range(rows)))
        assert (await SessionClient(client=served.client)._call("GET", ""))["sessions"] == []
        return played[0] if rows == 1 else played


def types_of(items: list[dict[str, Any]]) -> list[str]:
    return [item["type"] for item in items]


CONVERSATION = ["function_call", "function_call_output", "function_call", "function_call_output", "message"]


async def test_tools_are_called_in_the_session_that_is_scored_and_the_calls_of_the_model_are_the_response(monkeypatch):
    row = await run(monkeypatch, play_chat)
    assert (row["reward"], row["model_calls"], row["branches"]) == (1.0, 3, [])
    output = row["response"]["output"]
    assert types_of(output) == CONVERSATION
    assert [item["output"] for item in output if item["type"] == "function_call_output"] == ['"2"', '"5"']
    assert [item["content"] for item in row["responses_create_params"]["input"]] == ["Use the tool.", "Make it 5."]
    assert row["responses_create_params"]["temperature"] == 0.5


async def test_rollouts_at_the_same_time_have_sessions_of_their_own(monkeypatch):
    rows = await run(monkeypatch, play_chat, rows=8)
    assert [(row["reward"], row["model_calls"]) for row in rows] == [(1.0, 3)] * 8


async def test_an_agent_may_speak_messages_with_the_client_of_anthropic(monkeypatch):
    async def play(task, rollout):
        client = rollout.anthropic()
        tools: Any = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in rollout.tools
        ]
        messages: Any = [{"role": "user", "content": "Make it 5."}]
        while True:
            said = await client.messages.create(model=rollout.model, max_tokens=99, tools=tools, messages=messages)
            messages.append({"role": "assistant", "content": [part.model_dump() for part in said.content]})
            calls = [part for part in said.content if part.type == "tool_use"]
            if not calls:
                return
            told = [(call.id, await rollout.call_tool(call.name, call.input)) for call in calls]
            results = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in told]
            messages.append({"role": "user", "content": results})

    row = await run(monkeypatch, play)
    assert (row["reward"], types_of(row["response"]["output"])) == (1.0, CONVERSATION)


async def test_an_agent_may_have_any_http_client_and_speak_responses(monkeypatch):
    async def play(task, rollout):
        asked, url = dict(task["responses_create_params"]), f"{rollout.base_url}/responses"
        async with aiohttp.ClientSession(headers={"x-api-key": rollout.api_key}) as http:
            while True:
                async with http.post(url, json={**asked, "model": rollout.model}) as answer:
                    said = (await answer.json())["output"]
                asked["input"] = [*asked["input"], *said]
                calls = [item for item in said if item["type"] == "function_call"]
                if not calls:
                    return
                for call in calls:
                    told = await rollout.call_tool(call["name"], call["arguments"])
                    output = {"type": "function_call_output", "call_id": call["call_id"], "output": told}
                    asked["input"].append(output)

    row = await run(monkeypatch, play)
    assert (row["reward"], types_of(row["response"]["output"])) == (1.0, CONVERSATION)


async def test_code_that_blocks_plays_in_a_thread_of_its_own(monkeypatch):
    all_are_there = threading.Barrier(6, timeout=30)

    def play(task, rollout):
        all_are_there.wait()
        http = openai.DefaultHttpxClient(trust_env=False, verify=False)
        with openai.OpenAI(base_url=rollout.base_url, api_key=rollout.api_key, http_client=http) as client:
            client.chat.completions.create(**rollout.chat_params)
        assert rollout.call_tool_sync("add", {"number": 2}) == '"2"'
        assert asyncio.run(rollout.call_tool("add", {"number": 3})) == '"5"'
        return "Done, by a thread."

    rows = await run(monkeypatch, play, rows=6)
    assert [row["reward"] for row in rows] == [1.0] * 6


async def test_waiting_for_a_tool_on_the_event_loop_itself_is_an_error_instead_of_a_deadlock(monkeypatch):
    async def play(task, rollout):
        rollout.call_tool_sync("add", {"number": 2})

    row = await run(monkeypatch, play)
    assert row["_ng_failure_class"] == "agent"
    assert "await rollout.call_tool" in row["_ng_failure_message"]


@pytest.mark.parametrize(("answer", "is_added"), [("Done.", False), (None, False), ("Well Done", True)])
async def test_an_answer_that_the_model_has_not_just_said_is_added_for_the_verifier(monkeypatch, answer, is_added):
    async def play(task, rollout):
        await play_chat(task, rollout)
        return answer

    row = await run(monkeypatch, play)
    texts = [item["content"][0]["text"] for item in row["response"]["output"] if item["type"] == "message"]
    assert texts == (["Done.", answer] if is_added else ["Done."])
    assert row["reward"] == 1.0


async def test_calls_of_helpers_are_branches_beside_the_main_line(monkeypatch):
    async def play(task, rollout):
        await ask(rollout, "Name this.")
        await play_chat(task, rollout)
        await ask(rollout, "Is that right?")

    row = await run(monkeypatch, play)
    assert types_of(row["response"]["output"]) == CONVERSATION
    assert (row["model_calls"], [branch["calls"] for branch in row["branches"]]) == (5, [[0], [4]])
    prompts = [branch["responses_create_params"]["input"][0]["content"] for branch in row["branches"]]
    assert prompts == ["Name this.", "Is that right?"]


async def test_the_code_is_given_the_task_its_tools_and_the_settings_for_sampling(monkeypatch):
    seen: dict[str, Any] = {}

    async def play(task, rollout):
        seen.update(task=task, tools=rollout.tools, messages=rollout.messages, sampling=rollout.sampling)
        seen.update(chat=rollout.chat_params, mcp_url=rollout.mcp_url)
        seen.update(texts=(rollout.instructions, rollout.prompt))
        await ask(rollout, "Hello.")

    await run(monkeypatch, play)
    assert seen["task"]["target"] == 5
    assert [tool["name"] for tool in seen["tools"]] == ["add"]
    assert [message["role"] for message in seen["messages"]] == ["system", "user"]
    assert seen["sampling"] == {"temperature": 0.5, "max_tokens": 99}
    assert (seen["chat"]["temperature"], seen["chat"]["tools"][0]["function"]["name"]) == (0.5, "add")
    assert seen["mcp_url"] is None
    assert seen["texts"] == ("Use the tool.", "Make it 5.")


async def test_tools_can_be_called_over_mcp_in_the_same_session(monkeypatch):
    async def play(task, rollout):
        await ask(rollout, "Hello.")
        http = openai.DefaultAsyncHttpxClient(headers=rollout.mcp_headers, trust_env=False)
        async with http, streamable_http_client(rollout.mcp_url, http_client=http) as streams:
            async with ClientSession(*streams[:2]) as session:
                await session.initialize()
                assert [tool.name for tool in (await session.list_tools()).tools] == ["add"]
                await session.call_tool("add", {"number": 4})
        await rollout.call_tool("add", {"number": 1})
        return "Done."

    row = await run(monkeypatch, play, world=(SumServer, {"expose_tools_over_mcp": True}))
    assert row["reward"] == 1.0


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [("subtract", {}, "Unknown tool"), ("add", "{", "Invalid tool call"), ("add", {"number": "x"}, "number")],
)
async def test_what_the_model_does_wrong_with_tools_is_told_to_it(monkeypatch, name, arguments, told):
    async def play(task, rollout):
        await ask(rollout, "Hello.")
        return await rollout.call_tool(name, arguments)

    row = await run(monkeypatch, play)
    assert row["reward"] == 0.0
    assert "_ng_failure_class" not in row
    assert told in row["response"]["output"][-1]["content"][0]["text"]


async def test_an_error_of_the_code_is_the_failure_with_its_place_and_what_was_said_so_far(monkeypatch):
    async def play(task, rollout):
        await ask(rollout, "Hello.")
        raise KeyError("seed")

    row = await run(monkeypatch, play)
    assert row["_ng_failure_class"] == "agent"
    assert "KeyError: 'seed'" in row["_ng_failure_message"]
    assert "in play" in row["_ng_failure_message"]
    assert (row["model_calls"], types_of(row["response"]["output"])) == (1, ["function_call"])


async def test_code_that_wants_to_end_the_process_ends_its_rollout(monkeypatch):
    async def leave(task, rollout):
        raise SystemExit(3)

    def leave_thread(task, rollout):
        raise SystemExit(3)

    for how in (leave, leave_thread):
        row = await run(monkeypatch, how)
        assert row["_ng_failure_class"] == "agent"
        assert "SystemExit(3)" in row["_ng_failure_message"]


async def test_a_failure_that_the_code_names_keeps_its_name(monkeypatch):
    async def play(task, rollout):
        await ask(rollout, "Hello.")
        raise RolloutFailure("tool_server", "the search index is away", True)

    row = await run(monkeypatch, play)
    assert (row["_ng_failure_class"], row["_ng_failure_message"]) == ("tool_server", "the search index is away")


async def test_code_that_hangs_is_ended_by_its_deadline_and_what_was_said_is_kept(monkeypatch):
    async def play(task, rollout):
        await ask(rollout, "Hello.")
        await asyncio.Event().wait()

    row = await run(monkeypatch, play, rollout_timeout_s=1)
    assert (row["_ng_failure_class"], row["model_calls"]) == ("timeout", 1)
    assert "rollout_timeout_s" in row["_ng_failure_message"]


async def test_code_that_hangs_in_a_thread_is_interrupted(monkeypatch):
    has_ended = threading.Event()

    def play(task, rollout):
        try:
            while True:
                pass
        finally:
            has_ended.set()

    row = await run(monkeypatch, play, rollout_timeout_s=0.3)
    assert row["_ng_failure_class"] == "timeout"
    assert await asyncio.to_thread(has_ended.wait, 30)


async def test_tools_are_refused_after_the_end(monkeypatch):
    given: list[AgentRollout] = []

    async def play(task, rollout):
        given.append(rollout)
        await ask(rollout, "Hello.")

    await run(monkeypatch, play)
    with pytest.raises(RolloutFailure, match="after the rollout had ended"):
        await given[0].call_tool("add", {"number": 1})


async def test_a_rollout_without_a_call_of_the_model_is_a_failure(monkeypatch):
    async def play(task, rollout):
        return "Done."

    row = await run(monkeypatch, play)
    assert row["_ng_failure_class"] == "no_model_call"
    assert "rollout.base_url" in row["_ng_failure_message"]


@pytest.mark.parametrize("swallows", [True, False])
@pytest.mark.parametrize("calls_before", [0, 1])
async def test_a_model_that_cannot_be_asked_is_not_the_fault_of_the_agent(monkeypatch, swallows, calls_before):
    async def play(task, rollout):
        for _ in range(calls_before):
            await ask(rollout, "Hello.")
        try:
            await rollout.openai().chat.completions.create(model="m", messages=[], n=3)
        except openai.APIError:
            if not swallows:
                raise
        return "Done."

    row = await run(monkeypatch, play)
    assert (row["_ng_failure_class"], row["model_calls"]) == ("model_endpoint", calls_before)


async def test_a_tool_that_crashes_is_noted_or_fails_the_rollout_even_if_the_framework_catches_it(monkeypatch):
    async def play(task, rollout):
        await ask(rollout, "Hello.")
        try:
            return await rollout.call_tool("add", {"number": 13})
        except Exception as error:
            return f"Done, but {error}"

    noted = await run(monkeypatch, play)
    assert ("_ng_failure_class" in noted, noted["_ng_tool_errors"][0]["tool"]) == (False, "add")
    failed = await run(monkeypatch, play, tool_errors="fail")
    assert failed["_ng_failure_class"] == "tool_crashed"


async def test_a_resources_server_that_is_away_is_named_and_not_the_agent(monkeypatch):
    async def play(task, rollout):
        await ask(rollout, "Hello.")
        config = copy.deepcopy(rollout._toolbox._client.global_config_dict)
        next(iter(config.world.resources_servers.values())).port = free_port()
        rollout._toolbox._client = ServerClient(
            head_server_config=rollout._toolbox._client.head_server_config, global_config_dict=config
        )
        try:
            await rollout.call_tool("add", {"number": 1})
        except Exception:
            return "Done."

    with pytest.raises(AssertionError, match='"kind": "tool_server"'):
        await run(monkeypatch, play)


async def test_an_answer_that_is_no_text_is_a_failure(monkeypatch):
    async def play(task, rollout):
        await ask(rollout, "Hello.")
        return {"answer": 5}

    row = await run(monkeypatch, play)
    assert row["_ng_failure_class"] == "agent"
    assert "returned dict" in row["_ng_failure_message"]


async def test_a_client_whose_package_is_not_installed_says_what_to_do(monkeypatch):
    async def play(task, rollout):
        rollout._open_client("no_such_client", "Client", rollout.base_url, {})

    row = await run(monkeypatch, play)
    assert "hint: add it to the agent's requirements.txt" in row["_ng_failure_message"]


async def test_a_rollout_can_be_collected_without_being_scored(monkeypatch):
    row = await run(monkeypatch, play_chat, skip_verification=True, skip_verification_reward=-1.0)
    assert (row["reward"], row["verification_skipped"], row["model_calls"]) == (-1.0, True, 3)


async def test_clients_of_a_rollout_are_closed_at_its_end(monkeypatch):
    opened: list[Any] = []

    async def play(task, rollout):
        opened.extend([rollout.openai(), rollout.anthropic()])
        await ask(rollout, "Hello.")

    await run(monkeypatch, play)
    assert isinstance(opened[1], anthropic.AsyncAnthropic)
    assert [client.is_closed() for client in opened] == [True, True]
