# SPDX-License-Identifier: Apache-2.0
"""The session gateway over real sockets: the clients that agents use, and the calls that trainers make."""

import asyncio
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from fastapi import HTTPException
from pydantic import PrivateAttr, ValidationError

from nemo_gym._servers.processes.private_run_files import TOKEN_HEADER
from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.policy_versions import announce, read_policy_version
from nemo_gym.session_client import SessionClient, SessionRefused
from nemo_gym.testing import build_server, message, reply, running
from nemo_gym.trajectories import TrainableRollout
from tests.support.chat_models import chat_reply
from tests.support.served_run import TOKEN, ServedRun, serve_run

GATEWAY = {"session_gateway": {"enabled": True, "open_on_first_call": True}}
QUESTION = [{"role": "user", "content": "a"}]


class Engine(SimpleResponsesAPIModel):
    """An engine whose n-th answer goes on where the one before has stopped."""

    _answers: int = PrivateAttr(default=0)
    _waiting: asyncio.Queue = PrivateAttr(default_factory=asyncio.Queue)
    _waits: bool = PrivateAttr(default=False)

    async def _generate(self, asked: Any) -> dict[str, Any]:
        if "boom" in str(asked):
            raise HTTPException(400, "boom")
        if self._waits:
            go_on = asyncio.Event()
            self._waiting.put_nowait(go_on)
            await go_on.wait()
        self._answers += 1
        prompt = [token for turn in range(1, self._answers) for token in (turn, 100 + turn)] + [self._answers]
        made = {"generation_token_ids": [100 + self._answers], "generation_log_probs": [-0.5]}
        return {"prompt_token_ids": prompt, **made}

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()):
        item = {**message("hei").model_dump(), **await self._generate(body.input)}
        return NeMoGymResponse.model_validate({**reply().model_dump(), "output": [item]})

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()):
        return chat_reply("hei", **await self._generate(body.messages))


@pytest.fixture
async def run(monkeypatch):
    async with serve_run(monkeypatch, policy_model=(Engine, GATEWAY)) as served:
        yield served


def url_of(run: ServedRun, path: str = "") -> str:
    return f"{run.urls['policy_model']}{path}"


async def control(
    run: ServedRun, method: str, path: str, body: Any = None, token: str | None = TOKEN
) -> tuple[int, Any]:
    headers = {TOKEN_HEADER: token} if token else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.request(method, url_of(run, path), json=body) as answer:
            return answer.status, await answer.json()


def openai_at(base_url: str, key: str = "any") -> openai.AsyncOpenAI:
    # Loading certificates takes longer than all that is tested here.
    return openai.AsyncOpenAI(
        base_url=base_url, api_key=key, http_client=openai.DefaultAsyncHttpxClient(verify=False, trust_env=False)
    )


def anthropic_at(base_url: str, key: str = "any") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=base_url, api_key=key, http_client=anthropic.DefaultAsyncHttpxClient(verify=False, trust_env=False)
    )


async def ask_chat(base: str, key: str = "any", stream: bool = False) -> str:
    async with openai_at(f"{base}/v1", key) as client:
        answer = await client.chat.completions.create(model="m", messages=QUESTION, stream=stream)
        if not stream:
            return answer.choices[0].message.content
        return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])


async def ask_responses(base: str, key: str = "any", stream: bool = False) -> str:
    async with openai_at(f"{base}/v1", key) as client:
        answer = await client.responses.create(model="m", input="a", stream=stream)
        if not stream:
            return answer.output_text
        return "".join([event.delta async for event in answer if event.type == "response.output_text.delta"])


async def ask_messages(base: str, key: str = "any", stream: bool = False) -> str:
    async with anthropic_at(base, key) as client:
        if not stream:
            answer = await client.messages.create(model="m", max_tokens=9, messages=QUESTION)
            return answer.content[0].text
        async with client.messages.stream(model="m", max_tokens=9, messages=QUESTION) as events:
            return await events.get_final_text()


CLIENTS = [ask_chat, ask_responses, ask_messages]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ask", CLIENTS)
async def test_an_agent_with_its_own_client_leaves_exact_tokens_behind(run, ask, stream):
    await announce(7, head_server_config=run.head)
    for _ in range(2):
        assert await ask(url_of(run, "/sessions/rollout-1"), stream=stream) == "hei"
    status, told = await control(run, "POST", "/sessions/rollout-1/reward", {"reward": 1.0, "components": {"a": 1}})
    assert (status, told["status"], told["calls"]) == (200, "done", 2)
    _, told = await control(run, "GET", "/sessions/rollout-1")
    traces = told["traces"]
    assert [trace["prompt_token_ids"] for trace in traces] == [[1], [1, 101, 2]]
    assert [trace["completion_token_ids"] for trace in traces] == [[101], [102]]
    assert [trace["logprobs"] for trace in traces] == [[-0.5], [-0.5]]
    assert [trace["policy_version"] for trace in traces] == [7, 7]
    assert traces[0]["messages"] == QUESTION
    rollout = TrainableRollout.from_json(told["rollout"])
    assert (rollout.is_valid, rollout.reward, rollout.drift, rollout.policy_versions) == (True, 1.0, "clean", (7, 7))
    assert rollout.main_branch.ids == [1, 101, 2, 102]


@pytest.mark.parametrize("ask", CLIENTS)
async def test_an_agent_may_be_given_a_key_instead_of_a_path(run, ask):
    _, made = await control(run, "POST", "/sessions", {"id": "s", "task_index": 4, "agent": "codex"})
    assert await ask(url_of(run), key=made["api_key"]) == "hei"
    assert await ask(url_of(run), key="another key") == "hei"
    _, told = await control(run, "GET", "/sessions/s")
    assert (len(told["traces"]), told["task_index"], told["agent"]) == (1, 4, "codex")
    await control(run, "DELETE", "/sessions/s")
    with pytest.raises((openai.AuthenticationError, anthropic.AuthenticationError), match="not the key of a session"):
        await ask(url_of(run), key=made["api_key"])


@pytest.mark.parametrize("ask", CLIENTS)
async def test_an_agent_that_goes_on_after_the_end_is_told_so_at_once(run, ask):
    base = url_of(run, "/sessions/s")
    await ask(base)
    await control(run, "POST", "/sessions/s/reward", {"reward": 0.0})
    with pytest.raises((openai.ConflictError, anthropic.ConflictError), match="use a new id"):
        await ask(base)
    assert run.servers["policy_model"]._answers == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reward": None},
        {"reward": "1"},
        {"reward": True},
        {"reward": 1, "rewards": 2},
        {"reward": 1, "components": {"a": None}},
    ],
)
async def test_what_is_no_reward_is_refused_and_ends_nothing(run, body):
    await ask_chat(url_of(run, "/sessions/s"))
    status, told = await control(run, "POST", "/sessions/s/reward", body)
    assert status == 422, told
    _, told = await control(run, "GET", "/sessions/s")
    assert (told["status"], told["reward"]) == ("open", None)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_a_reward_that_is_no_finite_number_is_refused(run, number):
    await ask_chat(url_of(run, "/sessions/s"))
    headers = {TOKEN_HEADER: TOKEN, "content-type": "application/json"}
    for body in (f'{{"reward": {number}}}', f'{{"reward": 1, "components": {{"a": {number}}}}}'):
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.post(url_of(run, "/sessions/s/reward"), data=body) as answer:
                assert answer.status == 422


async def test_a_session_that_failed_has_no_reward(run):
    await ask_chat(url_of(run, "/sessions/s"))
    _, told = await control(run, "POST", "/sessions/s/failure", {"message": "the program crashed"})
    assert (told["status"], told["reward"], told["failure"]["message"]) == ("failed", None, "the program crashed")
    _, told = await control(run, "GET", "/sessions/s")
    assert (told["rollout"]["reward"], told["rollout"]["failure"]) == (None, "agent")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/sessions", {}),
        ("GET", "/sessions", None),
        ("GET", "/sessions/s", None),
        ("DELETE", "/sessions/s", None),
        ("POST", "/sessions/s/reward", {"reward": 1.0}),
        ("POST", "/sessions/s/failure", {}),
    ],
)
async def test_an_agent_can_neither_score_itself_nor_look_at_others(run, method, path, body):
    await ask_chat(url_of(run, "/sessions/s"))
    status, told = await control(run, method, path, body, token=None)
    assert status == 401
    assert "hint:" in told["detail"]
    _, told = await control(run, "GET", "/sessions/s")
    assert told["status"] == "open"


async def test_calls_that_fail_are_kept_as_such_and_the_session_goes_on(run):
    base = url_of(run, "/sessions/s")
    async with openai_at(f"{base}/v1") as client:
        boom = [{"role": "user", "content": "boom"}]
        with pytest.raises(openai.APIError):
            await client.chat.completions.create(model="m", messages=boom)
        with pytest.raises(openai.APIError):
            async for _ in await client.chat.completions.create(model="m", messages=boom, stream=True):
                pass
        with pytest.raises(openai.APIError):
            await client.chat.completions.create(model="m", messages="none")
    await ask_chat(base)
    await control(run, "POST", "/sessions/s/reward", {"reward": 1.0})
    _, told = await control(run, "GET", "/sessions/s")
    assert [trace["error"] is None for trace in told["traces"]] == [False, False, False, True]
    assert all("boom" in trace["error"] for trace in told["traces"][:2])
    assert TrainableRollout.from_json(told["rollout"]).is_valid


async def test_a_policy_that_changes_in_the_middle_of_a_session_is_told_turn_by_turn(run):
    engine, base = run.servers["policy_model"], url_of(run, "/sessions/s")
    await announce(7, head_server_config=run.head)
    await ask_chat(base)
    engine._waits = True
    asking = asyncio.create_task(ask_chat(base, stream=True))
    go_on = await engine._waiting.get()
    await announce(8, head_server_config=run.head)
    go_on.set()
    await asking
    engine._waits = False
    await ask_chat(base)
    await control(run, "POST", "/sessions/s/reward", {"reward": 1.0})
    _, told = await control(run, "GET", "/sessions/s")
    rollout = TrainableRollout.from_json(told["rollout"])
    turns = [(turn.policy_version, turn.policy_version_end) for turn in rollout.turns]
    assert turns == [(7, None), (7, 8), (8, None)]
    assert (rollout.policy_versions, rollout.straddles_versions) == ((7, 8), True)


async def test_a_trainer_that_comes_back_finds_the_sessions_that_ended_meanwhile_and_the_version(run):
    await announce(12, head_server_config=run.head)
    for name in ("a", "b", "c"):
        await ask_chat(url_of(run, f"/sessions/{name}"))
    await control(run, "POST", "/sessions/b/reward", {"reward": 1.0})
    _, page = await control(run, "GET", "/sessions?done=true")
    assert [session["id"] for session in page["sessions"]] == ["b"]
    # The trainer dies; agents and verifiers go on.
    await control(run, "POST", "/sessions/a/reward", {"reward": 0.0})
    await control(run, "POST", "/sessions/c/failure", {"message": "crashed"})
    _, rest = await control(run, "GET", f"/sessions?done=true&after={page['next']}")
    assert [(session["id"], session["reward"]) for session in rest["sessions"]] == [("a", 0.0), ("c", None)]
    assert await read_policy_version(run.head) == 12
    _, told = await control(run, "GET", "/sessions/a")
    assert told["rollout"]["policy_version_start"] == 12
    for name in ("a", "b", "c"):
        assert await control(run, "DELETE", f"/sessions/{name}") == (200, {"deleted": name})
    assert (await control(run, "GET", "/sessions"))[1] == {"sessions": [], "next": 0}
    assert (await control(run, "GET", "/sessions/a"))[0] == 404


async def test_a_trainer_has_a_client_for_all_of_it(run):
    sessions = SessionClient(client=run.client)
    opened = await sessions.create("s", task_index=2, agent="mine", metadata={"epoch": 1})
    await ask_chat(sessions.url_for("s"), key=opened["api_key"])
    with pytest.raises(SessionRefused, match=r"(?s)'s' is still open.*hint: set its reward"):
        await sessions.fetch_rollout("s")
    await sessions.set_reward("s", 0.25, {"a": 0.25}, final=False)
    await sessions.set_reward("s", 0.5, {"a": 0.5})
    rollout = await sessions.fetch_rollout("s")
    assert (rollout.reward, rollout.reward_components, rollout.group) == (0.5, {"a": 0.5}, ("mine", 2))
    await ask_chat(sessions.url_for("t"))
    await sessions.fail("t", "gave up")
    ended, cursor = await sessions.list_ended(limit=1)
    assert [one["id"] for one in ended] == ["s"]
    ended, cursor = await sessions.list_ended(cursor)
    assert [(one["id"], one["status"]) for one in ended] == [("t", "failed")]
    assert await sessions.list_ended(cursor) == ([], cursor)
    await sessions.delete("t")
    with pytest.raises(SessionRefused, match="was deleted") as caught:
        await sessions.fetch("t")
    assert caught.value.status == 404


async def test_a_client_says_what_a_server_without_a_gateway_lacks(monkeypatch):
    async with serve_run(monkeypatch, policy_model=(Engine, {"session_gateway": {"enabled": False}})) as run:
        with pytest.raises(SessionRefused, match=r"(?s)'policy_model' has no session gateway.*hint: its config"):
            await SessionClient(client=run.client).fetch("s")


@pytest.mark.parametrize("bad", [".hidden", "a b", "a%00b"])
async def test_an_id_that_is_none_is_refused(run, bad):
    async with aiohttp.ClientSession() as session:
        body = {"model": "m", "messages": QUESTION}
        async with session.post(url_of(run, f"/sessions/{bad}/v1/chat/completions"), json=body) as answer:
            assert answer.status == 400
            assert "Invalid session id" in await answer.text()


async def test_a_full_gateway_asks_clients_to_come_back(monkeypatch):
    gateway = {"session_gateway": {"enabled": True, "max_sessions": 1, "open_on_first_call": True}}
    async with serve_run(monkeypatch, policy_model=(Engine, gateway)) as run:
        await ask_chat(url_of(run, "/sessions/a"))
        async with aiohttp.ClientSession() as session:
            body = {"model": "m", "messages": QUESTION}
            async with session.post(url_of(run, "/sessions/b/v1/chat/completions"), json=body) as answer:
                assert (answer.status, "retry-after" in answer.headers) == (429, True)


@pytest.mark.parametrize("off", [{"session_gateway": {"enabled": False}}, {"num_workers": 2}])
async def test_a_server_that_is_told_so_or_has_several_processes_has_no_gateway(off):
    async with running(model=(Engine, off)) as client:
        assert (await client.post("model", "/sessions/s/v1/responses", json={"input": "a"})).status == 404
        assert (await client.get("model", "/sessions")).status == 404


async def test_a_server_without_the_setting_keeps_calls_once_somebody_makes_one(monkeypatch):
    async with serve_run(monkeypatch, policy_model=Engine) as run:
        assert (await control(run, "GET", "/sessions", token=None))[0] == 401
        opened = await SessionClient(client=run.client).create("s")
        for ask in CLIENTS:
            assert await ask(url_of(run, "/sessions/s"), key=opened["api_key"], stream=True) == "hei"
        told = await SessionClient(client=run.client).fetch("s")
        assert [trace["dialect"] for trace in told["traces"]] == ["chat", "responses", "messages"]
        assert await ask_chat(run.urls["policy_model"]) == "hei"
        assert (await control(run, "GET", "/session"))[0] == 404


@pytest.mark.parametrize("several", [{"num_workers": 2}, {"num_replicas": 2}])
def test_sessions_are_kept_by_one_process_alone(several):
    with pytest.raises(ValidationError, match=r"(?s)in one process.*hint: "):
        build_server(Engine, **GATEWAY, **several)
    assert build_server(Engine, **several).config.run_once is False
    assert build_server(Engine, **GATEWAY).config.run_once is True


def test_a_misspelt_setting_is_refused():
    with pytest.raises(ValidationError, match="max_session"):
        build_server(Engine, session_gateway={"enabled": True, "max_session": 1})
