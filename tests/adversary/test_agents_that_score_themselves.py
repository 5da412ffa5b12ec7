# SPDX-License-Identifier: Apache-2.0
"""An agent in training can reach the model server that it plays with, and must not decide how it is scored."""

import pytest
from aiohttp import ClientSession
from yarl import URL

from nemo_gym._servers.processes.private_run_files import TOKEN_HEADER
from nemo_gym.session_client import SessionClient
from tests.support.served_run import serve_run
from tests.test_session_gateway import GATEWAY, Engine, ask_chat

FORGED = [
    ("POST", "/sessions/s/reward", {"reward": 1.0}),
    ("POST", "//sessions/s/reward", {"reward": 1.0}),
    ("POST", "/sessions/s/v1/../reward", {"reward": 1.0}),
    ("POST", "/sessions/s%2Freward", {"reward": 1.0}),
    ("POST", "/ng-rollout/0-0/sessions/s/reward", {"reward": 1.0}),
    ("POST", "/sessions/other/failure", {"message": "never mind"}),
    ("DELETE", "/sessions/other", None),
    ("GET", "/sessions/other", None),
    ("GET", "/sessions?done=false", None),
    ("POST", "/policy_version", {"version": 99}),
]


@pytest.mark.fault(
    place="Model server",
    fault="An agent in training sets its own reward, ends or reads other sessions, or announces a policy version",
    outcome="It is refused: all of this needs the run token. The sessions stay as they are.",
)
async def test_who_plays_cannot_score_itself(monkeypatch):
    async with serve_run(monkeypatch, policy_model=(Engine, GATEWAY)) as run:
        trainer = SessionClient(client=run.client)
        for name in ("s", "other"):
            key = (await trainer.create(name))["api_key"]
            await ask_chat(trainer.url_for(name), key)
        all_it_has = {"authorization": f"Bearer {key}", "x-api-key": key, TOKEN_HEADER: key}
        async with ClientSession(headers=all_it_has) as agent:
            for method, path, body in FORGED:
                url = URL(f"{run.urls['policy_model']}{path}", encoded=True)
                async with agent.request(method, url, json=body) as answer:
                    assert answer.status in (401, 404, 405), (path, answer.status)
                    assert "hei" not in await answer.text()
        for name in ("s", "other"):
            told = await trainer.fetch(name)
            assert (told["status"], told["reward"], len(told["traces"])) == ("open", None, 1)
        async with ClientSession() as anybody, anybody.get(f"{run.urls['policy_model']}/policy_version") as answer:
            assert await answer.json() == {"version": None}


@pytest.mark.fault(
    place="Model server",
    fault="An agent makes calls in the session of another, by its name and with a key of its own or none",
    outcome="They are refused with 401 and the model is not asked; the other's rollout has its own calls only.",
)
async def test_a_call_needs_the_key_of_its_session(monkeypatch):
    async with serve_run(monkeypatch, policy_model=Engine) as run:
        trainer = SessionClient(client=run.client)
        keys = {name: (await trainer.create(name))["api_key"] for name in ("mine", "other")}
        for key in (keys["mine"], "", "any"):
            assert await post_call(run, "other", key) == 401
        assert run.servers["policy_model"]._answers == 0
        assert await ask_chat(trainer.url_for("other"), keys["other"]) == "hei"
        assert len((await trainer.fetch("other"))["traces"]) == 1


@pytest.mark.fault(
    place="Model server",
    fault="An agent makes calls with invented session ids, until there is no room for more sessions",
    outcome="Ids that nobody opened are refused with 404; where calls may open sessions, the trainer still can.",
)
@pytest.mark.parametrize("may_open", [False, True])
async def test_invented_sessions_do_not_lock_the_trainer_out(monkeypatch, may_open):
    gateway = {"session_gateway": {"max_sessions": 2, "open_on_first_call": may_open}}
    async with serve_run(monkeypatch, policy_model=(Engine, gateway)) as run:
        seen = [await post_call(run, f"invented-{number}", "any") for number in range(3)]
        assert seen == ([200, 200, 429] if may_open else [404, 404, 404])
        trainer = SessionClient(client=run.client)
        key = (await trainer.create("real"))["api_key"]
        assert await ask_chat(trainer.url_for("real"), key) == "hei"
        if may_open:
            assert await post_call(run, "invented-0", "another") == 401


async def post_call(run, session: str, key: str) -> int:
    """Return the status of a model call in a session."""
    url = f"{run.urls['policy_model']}/sessions/{session}/v1/chat/completions"
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    async with ClientSession() as agent, agent.post(url, json=body, headers={"x-api-key": key}) as answer:
        return answer.status
