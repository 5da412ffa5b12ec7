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
from resources_servers.example_mcp_weather.app import ExampleMCPWeatherResourcesServer, describe_weather
from responses_api_agents.simple_agent.app import SimpleAgent

REFS = agent_config("weather")
ROW = {**generate_data.rows()[0], "verifier_metadata": {"expected_city": "Reykjavik"}}
SENTENCE = describe_weather("Reykjavik")


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
    assert over_rest == {"weather": "The weather in Osaka is sunny and 72 F."}
    (tool,) = call(client, "tools/list")["tools"]
    assert (tool["name"], tool["inputSchema"]["required"]) == ("get_weather", ["city"])
    session = client.post("/seed_session", json={}).json()["mcp"]["headers"]
    told = call(client, "tools/call", session, name="get_weather", arguments={"city": "Osaka"})
    assert json.loads(told["content"][0]["text"]) == over_rest


def test_a_call_over_mcp_counts_for_its_session(client):
    session = client.post("/seed_session", json={}).json()["mcp"]["headers"]
    call(client, "tools/call", session, name="get_weather", arguments={"city": "Reykjavik"})
    assert client.post("/verify", json={**ROW, "response": reply(SENTENCE).model_dump()}).json()["reward"] == 1.0


def score(client: TestClient, city: str | None, said: str, **row: Any) -> dict[str, Any]:
    """Score what is said after a call for `city`."""
    client.post("/seed_session", json={})
    if city is not None:
        client.post("/get_weather", json={"city": city})
    scored: dict[str, Any] = client.post("/verify", json={**ROW, "response": reply(said).model_dump(), **row}).json()
    return scored


@pytest.mark.parametrize(
    ("city", "said", "seen", "mentioned"),
    [
        ("Reykjavik", f"Here: {SENTENCE}", True, True),
        ("REYKJAVIK", SENTENCE.upper(), True, True),
        ("Reykjavik", "It is sunny, 72 F.", True, False),
        ("Reykjavik", f"<think>{SENTENCE}</think>", True, False),
        ("Reykjavik", "", True, False),
        ("Lima", SENTENCE, False, True),
        (None, SENTENCE, False, True),
    ],
)
def test_the_tool_must_be_called_and_its_sentence_said(client, city, said, seen, mentioned):
    scored = score(client, city, said)
    assert scored["reward"] == float(seen and mentioned)
    assert (scored["tool_call_seen"], scored["final_response_mentions_weather"]) == (seen, mentioned)
    assert scored["expected_weather"] == SENTENCE


def test_a_row_without_a_city_asks_for_paris(client):
    assert score(client, "Paris", describe_weather("paris"), verifier_metadata={})["reward"] == 1.0


def test_a_session_that_is_not_known_is_a_failure_and_not_a_score(client):
    refused = client.post("/verify", json={**ROW, "response": reply(SENTENCE).model_dump()})
    assert refused.status_code == 400
    assert "/seed_session" in refused.text


async def test_the_agent_calls_the_tool_and_answers():
    (name, arguments), answer = generate_data.solution(ROW)
    model = scripted_model(reply(tool_call(name, arguments, call_id="call_1")), answer)
    servers = {"weather": ExampleMCPWeatherResourcesServer, "agent": (SimpleAgent, REFS), "policy_model": model}
    async with running(**servers) as client:
        rollout = await get_response_json(await client.post("agent", "/run", json=ROW))
    assert rollout["reward"] == 1.0
