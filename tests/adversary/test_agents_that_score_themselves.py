# SPDX-License-Identifier: Apache-2.0
"""An agent in training can reach the model server that it plays with, and must not decide how it is scored."""

import pytest
from aiohttp import ClientSession
from yarl import URL

from nemo_gym._serving.run_files import TOKEN_HEADER
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
            await ask_chat(trainer.url_for(name))
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
