# SPDX-License-Identifier: Apache-2.0
import json
from unittest.mock import AsyncMock, MagicMock

from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient
from responses_api_agents.patient_agent.app import PatientAgent, PatientAgentConfig
from responses_api_agents.simple_agent.app import ModelServerRef, ResourcesServerRef


def reply(text: str) -> dict:
    return {
        "id": "resp",
        "created_at": 1.0,
        "model": "m",
        "object": "response",
        "output": [
            {
                "id": "msg",
                "content": [{"annotations": [], "text": text, "type": "output_text"}],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def fake(content: dict) -> AsyncMock:
    mock = AsyncMock(ok=True, status=200, cookies={})
    mock.read.return_value = json.dumps(content).encode()
    mock.json.return_value = content
    return mock


def make_agent() -> PatientAgent:
    return PatientAgent(
        config=PatientAgentConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="",
            resources_server=ResourcesServerRef(type="resources_servers", name="my resources"),
            model_server=ModelServerRef(type="responses_api_models", name="my model"),
        ),
        server_client=MagicMock(spec=ServerClient),
    )


def test_responses_tries_again() -> None:
    agent = make_agent()
    agent.server_client.post = AsyncMock(side_effect=[fake(reply("")), fake(reply("at last"))])
    client = TestClient(agent.setup_webserver())
    answer = client.post("/v1/responses", json={"input": [{"role": "user", "content": "hello"}]})
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"][0]["content"][0]["text"] == "at last"
    assert client.get("/tried").json() == [0, 1]
    assert agent.server_client.post.call_args.kwargs["server_name"] == "my model"


def test_run_adds_to_the_result() -> None:
    agent = make_agent()
    answer = reply("hi")

    async def post(server_name: str, url_path: str, json=None, **kwargs):
        if url_path == "/seed_session":
            return fake({})
        if url_path == "/verify":
            return fake(json | {"reward": 1.0})
        return fake(answer)

    agent.server_client.post = post
    row = {"responses_create_params": {"input": "q"}, "expected": "hi"}
    result = TestClient(agent.setup_webserver()).post("/run", json=row).json()
    assert (result["reward"], result["tries"], result["expected"]) == (1.0, 1, "hi")
