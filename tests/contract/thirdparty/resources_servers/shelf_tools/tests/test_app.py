# SPDX-License-Identifier: Apache-2.0
from unittest.mock import MagicMock

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponseFunctionToolCall
from nemo_gym.server_utils import ServerClient
from resources_servers.shelf_tools.app import ShelfToolsServer


def make_app() -> FastAPI:
    config = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="shelf")
    return ShelfToolsServer(config=config, server_client=MagicMock(spec=ServerClient)).setup_webserver()


@pytest.fixture
def client():
    with TestClient(make_app()) as client:
        yield client


def test_tools(client: TestClient) -> None:
    assert client.post("/put", json={"title": "a"}).json() == {"books": [{"title": "a", "pages": 100}], "total": 1}
    assert client.post("/put", json={"title": "b", "pages": 7}).json()["total"] == 2
    assert client.post("/count", json={}).json() == 2
    assert client.post("/put", json={"title": "c", "pages": 0}).status_code == 422
    assert client.post("/untyped", json={"z": 1, "a": 2}).json() == {"keys": ["a", "z"], "session": True}
    moved = client.post("/move?loud=true", json={"book": {"title": "a"}, "shelf": "north"})
    assert moved.json() == "a to north!"
    assert client.post("/shout", json={"words": "Hey"}).json() == {"said": "HEY"}
    assert client.post("/whisper", json={"words": "Hey"}).json() == {"said": "hey"}
    assert client.post("/list_south", json={}).json() == {"shelf": "south", "from": "/list_south"}
    assert client.post("/text", json={}, headers={"x-style": "bold"}).text == "bold dep"
    created = client.post("/created", json=[{"title": "x"}])
    assert (created.status_code, created.json()) == (201, [{"title": "x", "pages": 100}])


def test_background_task_and_middleware(client: TestClient) -> None:
    assert client.post("/later", json={"title": "x"}).json() == {"accepted": True}
    assert client.get("/log").json() == ["/later", "later x", "/log"]


def test_lifespan_is_wrapped() -> None:
    app = make_app()
    with TestClient(app) as client:
        assert client.get("/admin/open").json() is True
    assert TestClient(app).get("/admin/open").json() is False


def test_catch_all_comes_last(client: TestClient) -> None:
    assert client.post("/divide", json={"a": 6, "b": 3}).json() == {"quotient": 2.0}
    assert client.post("/divide", json={"a": 6, "b": 0}).status_code == 400
    missing = client.post("/fly", json={"to": "moon"})
    assert missing.status_code == 404
    assert missing.json() == {"detail": 'no tool fly for {"to": "moon"}'}
    assert client.post("/seed_session", json={}).json() == {}


def test_errors_reach_the_test_without_the_exception_middleware(client: TestClient) -> None:
    with pytest.raises(ValueError, match="cannot use"):
        client.post("/broken", json={"a": 1})
    quiet = TestClient(make_app(), raise_server_exceptions=False)
    assert quiet.post("/broken", json={}).status_code == 500


def test_with_the_exception_middleware_a_model_can_read_the_error() -> None:
    config = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="shelf")
    server = ShelfToolsServer(config=config, server_client=MagicMock(spec=ServerClient))
    app = server.setup_webserver()
    server.setup_liveness(app)
    server.setup_exception_middleware(app)
    client = TestClient(app)
    reply = client.post("/broken", json={"a": 1})
    assert reply.status_code == 500
    assert "ValueError" in reply.json()
    assert client.get("/").json() == {"status": "ok"}
    assert client.post("/put", json={"title": 3}).status_code == 422


def test_verify_counts_calls(client: TestClient) -> None:
    call = NeMoGymResponseFunctionToolCall(call_id="c1", name="put", arguments='{"title": "a"}')
    body = {
        "responses_create_params": {"input": [{"role": "user", "content": "go"}], "tools": []},
        "response": {
            "id": "r",
            "created_at": 0.0,
            "model": "m",
            "object": "response",
            "output": [
                call.model_dump(),
                {"type": "function_call_output", "call_id": "c1", "output": "ok"},
                {"type": "function_call", "call_id": "c2", "name": "put", "arguments": "{", "id": "c2"},
            ],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        },
    }
    assert client.post("/verify", json=body).json()["reward"] == 2.0
