# SPDX-License-Identifier: Apache-2.0
"""One tool and a verifier that asks whether it was called."""

import json
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyResponse
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient, get_response_json
from nemo_gym.testing import agent_config, asked, reply, running, scripted_model, tool_call
from resources_servers.example_single_tool_call import generate_data
from resources_servers.example_single_tool_call.app import ExampleSingleToolCallResourcesServer
from responses_api_agents.simple_agent.app import SimpleAgent

REFS = agent_config("weather")


@pytest.fixture
def client():
    server = ExampleSingleToolCallResourcesServer(
        config=BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name=""),
        server_client=MagicMock(spec=ServerClient),
    )
    return TestClient(server.setup_webserver())


def test_the_weather_is_cold_everywhere(client):
    answer = client.post("/get_weather", json={"city": "San Francisco"})
    assert answer.json() == {
        "city": "San Francisco",
        "weather_description": "The weather in San Francisco is cold.",
    }


def test_a_call_without_a_city_is_refused(client):
    answer = client.post("/get_weather", json={"town": "Lima"})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "city"]


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        (reply(tool_call("get_weather", {"city": "Lima"}), "It is cold."), 1.0),
        (reply(tool_call("get_weather", "{not json")), 1.0),
        (reply(tool_call("Get_Weather", {"city": "Lima"})), 0.0),
        (reply("It is cold."), 0.0),
        (reply(), 0.0),
    ],
)
def test_a_response_that_calls_the_tool_is_worth_one(client, response, reward):
    task = {"responses_create_params": asked("How is the weather in Lima?").model_dump(exclude_unset=True)}
    scored = client.post("/verify", json={**task, "response": response.model_dump()}).json()
    assert scored.keys() == BaseVerifyResponse.model_fields.keys()
    assert scored["reward"] == reward
    assert scored["response"]["output"] == response.model_dump()["output"]


def test_responses_can_be_scored_again_later(client):
    assert client.get("/reverify_mode").json() == "stateless"


async def test_the_agent_calls_the_tool_and_answers():
    model = scripted_model(reply(tool_call("get_weather", {"city": "Lima"}, call_id="call_1")), "It is cold in Lima.")
    servers = {"weather": ExampleSingleToolCallResourcesServer, "agent": (SimpleAgent, REFS), "policy_model": model}
    async with running(**servers) as client:
        rollout = await get_response_json(await client.post("agent", "/run", json=generate_data.rows()[0]))

    call, output, message = rollout["response"]["output"]
    assert rollout["reward"] == 1.0
    assert (call["name"], message["content"][0]["text"]) == ("get_weather", "It is cold in Lima.")
    assert json.loads(output["output"])["weather_description"] == "The weather in Lima is cold."


def test_rows_are_create_params_and_nothing_else():
    for row in generate_data.rows():
        assert set(row) == {"responses_create_params"}
        params = NeMoGymResponseCreateParamsNonStreaming.model_validate(row["responses_create_params"])
        assert [item.role for item in params.input] == ["developer", "user"]
        assert [(tool["name"], tool["strict"]) for tool in params.tools] == [("get_weather", True)]
