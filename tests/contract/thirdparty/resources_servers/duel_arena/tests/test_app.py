# SPDX-License-Identifier: Apache-2.0
import json
from http.cookies import SimpleCookie
from unittest.mock import AsyncMock, MagicMock, patch

import pytest
from aiohttp import ClientResponseError
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym.server_utils import ServerClient
from resources_servers.duel_arena.app import DuelArenaConfig, DuelArenaServer

REPLY = {
    "id": "r",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "touché", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


class FakeReply:
    """What is used of an aiohttp response, and nothing else."""

    def __init__(self, content, status: int = 200) -> None:
        self.status = status
        self.ok = status < 400
        self.cookies = SimpleCookie()
        self._body = json.dumps(content).encode()
        self.content = self

    async def read(self) -> bytes:
        return self._body

    async def json(self):
        return json.loads(self._body)

    def raise_for_status(self) -> None:
        if not self.ok:
            raise ClientResponseError(request_info=MagicMock(), history=(), status=self.status, message="bad")


@pytest.fixture
def server() -> DuelArenaServer:
    config = DuelArenaConfig(
        host="127.0.0.1",
        port=8000,
        entrypoint="app.py",
        name="arena",
        opponents={"ogre": {"model": {"type": "responses_api_models", "name": "ogre_model"}, "strength": 3}},
        scoreboard={"type": "resources_servers", "name": "board"},
    )
    return DuelArenaServer(config=config, server_client=MagicMock(spec=ServerClient))


@pytest.fixture
def client(server: DuelArenaServer) -> TestClient:
    return TestClient(server.setup_webserver())


def test_config() -> None:
    with pytest.raises(ValidationError):
        DuelArenaConfig(
            host="h", port=1, entrypoint="", name="a", scoreboard={"type": "responses_api_models", "name": "x"}
        )


def test_a_duel(server: DuelArenaServer, client: TestClient) -> None:
    server.server_client.post = AsyncMock(return_value=FakeReply(REPLY))
    with patch("resources_servers.duel_arena.app.uuid4", return_value="d-1"):
        seeded = client.post("/seed_session", json={"opponent": "ogre", "task_idx": 3})
    assert seeded.json() == {"duel_id": "d-1", "obs": [{"role": "user", "content": "en garde"}]}
    assert seeded.headers["x-duel"] == "d-1"
    assert set(seeded.cookies) == {"last_duel", "DuelArenaServer___arena"}

    strikes = [client.post("/strike", json={"duel_id": "d-1", "strike": n}).json() for n in (9, 1, 9)]
    assert strikes[0] == {"reply": "touché", "done": False}
    assert [strike["done"] for strike in strikes] == [False, False, True]
    server.server_client.post.assert_awaited()
    assert server.server_client.post.await_args.args == ("ogre_model", "/v1/responses")
    assert server.server_client.post.await_args.kwargs["cookies"]["last_duel"] == "d-1"

    verified = client.post("/verify", json={"responses_create_params": {"input": []}, "response": REPLY})
    assert verified.json()["reward_components"] == {"hits": 2.0, "style": 0.5}
    assert verified.status_code == 200
    assert client.post("/close", json={"duel_id": "d-1"}).json()["hits"] == 2
    assert client.post("/close", json={"duel_id": "d-1"}).json() is None
    verified = client.post("/verify", json={"responses_create_params": {"input": []}, "response": REPLY})
    assert (verified.status_code, verified.json()["reward"]) == (202, 0.0)


def test_mistakes(server: DuelArenaServer, client: TestClient) -> None:
    unknown = client.post("/seed_session", json={"opponent": "elf"})
    assert (unknown.status_code, unknown.json()) == (400, {"detail": "unknown opponent elf"})
    assert client.post("/strike", json={"duel_id": "x", "strike": 10}).status_code == 422
    duel_id = client.post("/seed_session", json={"opponent": "ogre"}).json()["duel_id"]
    server.server_client.post = AsyncMock(return_value=FakeReply({"detail": "no"}, status=503))
    with pytest.raises(ClientResponseError) as raised:
        client.post("/strike", json={"duel_id": duel_id, "strike": 1})
    assert raised.value.status == 503
    assert raised.value.response_content == b'{"detail": "no"}'


def test_own_aggregate(client: TestClient) -> None:
    reply = client.post("/aggregate_metrics", json={"verify_responses": [{"reward": 1.0}]})
    assert reply.json() == {"group_level_metrics": [], "agent_metrics": {"n": 1}, "key_metrics": {"n": 1}}
