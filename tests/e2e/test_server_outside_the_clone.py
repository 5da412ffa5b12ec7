# SPDX-License-Identifier: Apache-2.0
"""A server that lives in somebody's own folder is found, started, queried and verified."""

import asyncio
from pathlib import Path
from textwrap import dedent

import pytest

from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from nemo_gym.testing import asked, reply
from tests.support.gym_process import gym_env_start

APP = """
from fastapi import FastAPI, Request
from pydantic import BaseModel

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class CapitalsConfig(BaseResourcesServerConfig):
    hint: str


class CapitalsVerifyRequest(BaseVerifyRequest):
    capital: str


class HintResponse(BaseModel):
    hint: str
    asked: int


class CapitalsServer(SimpleResourcesServer):
    config: CapitalsConfig
    asked: dict = {}

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/hint")(self.hint)
        return app

    async def seed_session(self, request: Request, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        self.asked[request.session[SESSION_ID_KEY]] = 0
        return BaseSeedSessionResponse()

    async def hint(self, request: Request) -> HintResponse:
        self.asked[request.session[SESSION_ID_KEY]] += 1
        return HintResponse(hint=self.config.hint, asked=self.asked[request.session[SESSION_ID_KEY]])

    async def verify(self, body: CapitalsVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(body.capital in body.response.output_text))


if __name__ == "__main__":
    CapitalsServer.run_webserver()
"""


@pytest.fixture
def own_root(tmp_path: Path) -> Path:
    folder = tmp_path / "mine" / "resources_servers" / "capitals"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "requirements.txt").write_text("-e nemo-gym[dev] @ ../../\n")
    (folder / "configs" / "capitals.yaml").write_text(
        dedent("""\
        capitals:
          resources_servers:
            capitals:
              entrypoint: app.py
              domain: knowledge
              hint: ${capital_hint}
        """)
    )
    return tmp_path / "mine"


async def play(head: BaseServerConfig) -> dict:
    client = await asyncio.to_thread(ServerClient.load_from_global_config, head)
    try:
        seeded = await client.post("capitals", "/seed_session", json={})
        await raise_for_status(seeded)
        hint = await client.post("capitals", "/hint", cookies=seeded.cookies)
        again = await client.post("capitals", "/hint", cookies=hint.cookies)
        verified = await client.post(
            "capitals",
            "/verify",
            json={"responses_create_params": asked("Norway?"), "response": reply("Oslo"), "capital": "Oslo"},
        )
        await raise_for_status(verified)
        return {
            "hints": [await get_response_json(hint), await get_response_json(again)],
            "reward": (await get_response_json(verified))["reward"],
            "config": client.global_config_dict,
        }
    finally:
        await close_global_aiohttp_client()


@pytest.mark.slow
async def test_a_server_of_an_extra_root_is_started_queried_and_verified(own_root, tmp_path, unused_tcp_port):
    empty = tmp_path / "empty"
    empty.mkdir()
    with gym_env_start(
        "--resources-server",
        "capitals",
        "+capital_hint='it is cold, and = rhymes with {slow}'",
        "+policy_api_key=sk-very-secret",
        f"+head_server.port={unused_tcp_port}",
        cwd=empty,
        roots=own_root,
    ) as gym:
        outcome = await play(BaseServerConfig(host="127.0.0.1", port=unused_tcp_port))
        assert gym.stop() == 0
    assert [hint["asked"] for hint in outcome["hints"]] == [1, 2]
    assert outcome["hints"][0]["hint"] == "it is cold, and = rhymes with {slow}"
    assert outcome["reward"] == 1.0
    assert outcome["config"].policy_api_key == "sk-very-secret"
    assert list(empty.iterdir()) == [], "starting servers writes nothing into the current folder"
