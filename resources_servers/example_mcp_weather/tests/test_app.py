# SPDX-License-Identifier: Apache-2.0
"""A tool over REST and over MCP, and a verifier that knows what the tool tells."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.mcp_auto_exposure import maybe_auto_expose
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, build_server, reply, running, scripted_model, tool_call
from resources_servers.example_mcp_weather import generate_data
from resources_servers.example_mcp_weather.app import ExampleMCPWeatherResourcesServer
from resources_servers.example_mcp_weather.weather import WEATHER
from responses_api_agents.simple_agent.app import SimpleAgent

REFS = agent_config("weather")
ROW = next(row for row in generate_data.rows() if row["city"] == "Reykjavik")


@pytest.fixture
def client():
    server = build_server(ExampleMCPWeatherResourcesServer)
    app = server.setup_webserver()
    maybe_auto_expose(server, app)
    return TestClient(app)


def call(client: TestClient, method: str, headers: dict[str, str] | None = None, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    accept = {"accept": "application/json, text/event-stream"}
    return client.post("/mcp", json=message, headers={**accept, **(headers or {})}).json()["result"]


def test_the_tool_tells_the_same_over_both_ways(client):
    over_rest = client.post("/get_weather", json={"city": "Osaka"}).json()
    assert (over_rest["condition"], over_rest["temperature_celsius"]) == WEATHER["Osaka"]
    (tool,) = call(client, "tools/list")["tools"]
    assert (tool["name"], tool["inputSchema"]["required"]) == ("get_weather", ["city"])
    session = client.post("/seed_session", json={}).json()["mcp"]["headers"]
    told = call(client, "tools/call", session, name="get_weather", arguments={"city": "Osaka"})
    assert json.loads(told["content"][0]["text"]) == over_rest


def test_a_city_that_the_tool_does_not_know_is_an_answer_for_the_model(client):
    told = client.post("/get_weather", json={"city": "Atlantis"}).json()
    assert told["condition"] is None
    assert "known are Casablanca" in told["error"]


@pytest.mark.parametrize(
    ("said", "reward"),
    [
        ("It is snowy in Reykjavik, at -4 °C.", 1.0),
        ("Snowy, \N{MINUS SIGN}4 degrees.", 1.0),
        ("It is snowy in Reykjavik.", 0.0),
        ("It has -4 °C.", 0.0),
        ("It is snowy, at 4 °C.", 0.0),
        ("It is snowy, at -40 °C.", 0.0),
        ("", 0.0),
    ],
)
def test_an_answer_must_name_condition_and_temperature(client, said, reward):
    scored = client.post("/verify", json={**ROW, "response": reply(said).model_dump()}).json()
    assert scored["reward"] == reward
    assert (scored["expected_condition"], scored["expected_temperature_celsius"]) == WEATHER["Reykjavik"]


def test_a_row_about_a_city_that_has_no_weather_is_refused(client):
    refused = client.post("/verify", json={**ROW, "city": "Atlantis", "response": reply("x").model_dump()})
    assert refused.status_code == 422
    assert "unknown city 'Atlantis'" in refused.text


async def test_the_agent_calls_the_tool_and_answers():
    (name, arguments), answer = generate_data.solution(ROW)
    model = scripted_model(reply(tool_call(name, arguments, call_id="call_1")), answer)
    servers = {"weather": ExampleMCPWeatherResourcesServer, "agent": (SimpleAgent, REFS), "policy_model": model}
    async with running(**servers) as client:
        rollout = await get_response_json(await client.post("agent", "/run", json=ROW))
    assert rollout["reward"] == 1.0
