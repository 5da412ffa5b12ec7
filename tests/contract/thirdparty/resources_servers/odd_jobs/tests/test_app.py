# SPDX-License-Identifier: Apache-2.0
import asyncio
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

import httpx
import pytest
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyRequest
from nemo_gym.server_utils import ServerClient
from resources_servers.odd_jobs.app import GuardedJobsServer, OddJobsServer


def make_server(cls: type = OddJobsServer) -> OddJobsServer:
    config = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="odd")
    return cls(config=config, server_client=MagicMock(spec=ServerClient))


def body(text: str) -> dict:
    message = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return {"responses_create_params": {"input": ""}, "response": response}


@pytest.mark.parametrize("cls", [OddJobsServer, GuardedJobsServer])
def test_verify(cls: type) -> None:
    client = TestClient(make_server(cls).setup_webserver())
    assert client.post("/verify", json=body("")).json()["reward"] == 0.0
    unjudged = client.post("/verify", json=body("?")).json()
    assert (unjudged["reward"], unjudged["_ng_failure_class"]) == (0.0, "judge_failed")
    assert client.get("/openapi.json").status_code == 200


def test_verify_from_a_plain_thread() -> None:
    server = make_server(GuardedJobsServer)
    request = BaseVerifyRequest.model_validate(body("long enough an answer"))
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(lambda: asyncio.run(server.verify(request))).result()
    assert result.reward == pytest.approx(1.0)


def test_values_kept_in_the_cookie() -> None:
    client = TestClient(make_server().setup_webserver())
    assert client.post("/nudge", json={}).json() == {"nudges": 1}
    assert client.post("/nudge", json={"by": 4}, headers={"origin": "http://x"}).json() == {"nudges": 5}
    client.cookies.clear()
    assert client.post("/nudge", json={}).json() == {"nudges": 1}


def test_socket() -> None:
    with TestClient(make_server().setup_webserver()).websocket_connect("/talk") as socket:
        assert socket.receive_json() == {"known": True}


async def test_over_an_asgi_transport() -> None:
    transport = httpx.ASGITransport(app=make_server(GuardedJobsServer).setup_webserver())
    async with httpx.AsyncClient(transport=transport, base_url="http://odd") as client:
        replies = await asyncio.gather(*(client.post("/verify", json=body("x" * n)) for n in range(8)))
    assert [reply.status_code for reply in replies] == [200] * 8
