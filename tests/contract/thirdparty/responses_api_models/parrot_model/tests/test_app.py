# SPDX-License-Identifier: Apache-2.0
import json
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import ServerClient
from responses_api_models.parrot_model.app import ParrotModel, ParrotModelConfig

TOOL = {"type": "function", "name": "fly", "parameters": {"type": "object"}, "strict": True, "description": "Fly."}


@pytest.fixture(params=["bare", "empty config", "plain config"])
def model(request: pytest.FixtureRequest) -> ParrotModel:
    client = MagicMock(spec=ServerClient)
    if request.param != "bare":
        client.global_config_dict = {} if request.param == "empty config" else {"observability_enabled": False}
    config = ParrotModelConfig(host="0.0.0.0", port=8081, entrypoint="", name="")
    return ParrotModel(config=config, server_client=client)


@pytest.fixture
def client(model: ParrotModel) -> TestClient:
    return TestClient(model.setup_webserver())


async def test_called_directly(model: ParrotModel) -> None:
    response = await model.responses(NeMoGymResponseCreateParamsNonStreaming(input="hi"))
    assert response.output_text == "You said: hi"
    chat = await model.chat_completions(
        body=NeMoGymChatCompletionCreateParamsNonStreaming(messages=[{"role": "user", "content": "hi"}])
    )
    assert chat.choices[0].message.content == "You said: hi"
    assert chat.choices[0].message.tool_calls is None


def test_responses(client: TestClient) -> None:
    reply = client.post("/v1/responses", json={"input": [{"role": "user", "content": "hi"}], "tools": [TOOL]})
    assert reply.status_code == 200, reply.text
    response = NeMoGymResponse.model_validate(reply.json())
    assert response.output[0].content[0].text == "You said: hi"
    assert response.output[1].name == "fly"
    assert response.tools[0].name == "fly"
    prefixed = client.post("/ng-rollout/1-2/v1/responses", json={"input": "hi"})
    assert prefixed.status_code == 200


def test_responses_checks_its_body(client: TestClient) -> None:
    reply = client.post("/v1/responses", json={"input": "hi", "unknown_parameter": 1})
    assert reply.status_code == 422
    assert reply.json()["detail"][0]["loc"] == ["body", "unknown_parameter"]
    assert client.post("/v1/responses", json={}).status_code == 422
    assert client.post("/v1/responses", content=b"{").status_code == 422


def test_chat_completions(client: TestClient) -> None:
    tool = {"type": "function", "function": {"name": "fly", "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool], "made_up": True}
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    completion = NeMoGymChatCompletion.model_validate(reply.json())
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.choices[0].message.tool_calls[0].function.name == "fly"


def test_streams(client: TestClient) -> None:
    reply = client.post("/v1/responses", json={"input": "hi", "stream": True, "some_client_field": 1})
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("event: ") for line in reply.text.splitlines() if line.startswith("event: ")]
    assert events[0] == "response.created"
    assert "response.output_item.done" in events
    assert events[-1] == "response.completed"

    chat = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}], "stream": True})
    lines = [line.removeprefix("data: ") for line in chat.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "You said: hi"


def test_messages(client: TestClient) -> None:
    body = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    reply = client.post("/v1/messages", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["content"][0] == {"type": "text", "text": "You said: hi"}
