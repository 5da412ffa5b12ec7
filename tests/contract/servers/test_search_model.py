# SPDX-License-Identifier: Apache-2.0
"""A coding client streams from a model server that others wrote: hosted items go out, come back and are counted."""

import json
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from tests.contract.servers.search_model import SearchModel, SearchModelConfig

LOOK = {"type": "function", "name": "look", "description": "Look."}
HOSTED = ["mcp_list_tools", "mcp_call", "web_search_call"]


@pytest.fixture
def client() -> TestClient:
    config = SearchModelConfig(host="0.0.0.0", port=8080, entrypoint="", name="search")
    return TestClient(SearchModel(config=config, server_client=MagicMock(spec=ServerClient)).setup_webserver())


def stream(client: TestClient, **body: Any) -> list[dict[str, Any]]:
    reply = client.post("/v1/responses", json={"stream": True, "client_metadata": {"window": 1}, **body})
    assert reply.headers["content-type"].startswith("text/event-stream"), reply.text
    return [json.loads(line.removeprefix("data: ")) for line in reply.text.splitlines() if line.startswith("data: ")]


def test_hosted_items_are_streamed_and_may_be_sent_back(client: TestClient) -> None:
    question = {"role": "user", "content": "When does the sun rise?"}
    sent = stream(client, input=[question])
    done = [event["item"] for event in sent if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == [*HOSTED, "message"]
    assert (done[1]["status"], done[1]["id"]) == ("answered", None)
    assert NeMoGymResponse.model_validate(sent[-1]["response"]).output_text == "1 given, 0 searched"

    again = stream(client, input=[question, *done, {"type": "compaction_trigger"}, question])
    assert again[-1]["response"]["output"][-1]["content"][0]["text"] == "1 given, 1 searched"


def test_tools_of_a_namespace_come_back_under_their_own_names(client: TestClient) -> None:
    namespace = {"type": "namespace", "name": "sky", "tools": [LOOK]}
    call = stream(client, input="Look up.", tools=[namespace])[-1]["response"]["output"][-1]
    assert (call["name"], call["namespace"]) == ("look", "sky")


def test_a_chat_completion_of_another_shape_is_a_bad_gateway(client: TestClient) -> None:
    reply = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]})
    assert reply.status_code == 502
    assert "choices: Field required" in reply.json()["detail"]
