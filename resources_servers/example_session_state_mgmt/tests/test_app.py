# SPDX-License-Identifier: Apache-2.0
"""A counter for every session."""

import asyncio
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from nemo_gym.testing import agent_config, asked, reply, running, scripted_model
from resources_servers.example_session_state_mgmt import generate_data
from resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmtResourcesServer
from responses_api_agents.simple_agent.app import SimpleAgent

REFS = agent_config("counter")
ANSWERED = {
    "responses_create_params": asked("Increment the counter by 2.").model_dump(exclude_unset=True),
    "response": reply("Done.").model_dump(),
}


@pytest.fixture
def app():
    server = ExampleSessionStateMgmtResourcesServer(
        config=BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name=""),
        server_client=MagicMock(spec=ServerClient),
    )
    return server.setup_webserver()


def session(app, initial_count):
    """A client with a session of its own."""
    client = TestClient(app)
    assert client.post("/seed_session", json={"initial_count": initial_count}).status_code == 200
    return client


def shown(client):
    return client.post("/get_counter_value", json={}).json()["count"]


def reward(client, expected_count):
    return client.post("/verify", json={**ANSWERED, "expected_count": expected_count}).json()["reward"]


def test_a_counter_begins_where_its_task_says(app):
    assert shown(session(app, 3)) == 3


def test_increments_add_up(app):
    client = session(app, 3)
    for count in (2, 4, -1):
        assert client.post("/increment_counter", json={"count": count}).json() == {"success": True}
    assert shown(client) == 8


def test_sessions_have_counters_of_their_own(app):
    one, other = session(app, 0), session(app, 100)
    one.post("/increment_counter", json={"count": 1})
    assert (shown(one), shown(other)) == (1, 100)


def test_seeding_a_session_again_keeps_its_count(app):
    client = session(app, 3)
    client.post("/increment_counter", json={"count": 1})
    client.post("/seed_session", json={"initial_count": 7})
    assert shown(client) == 4


def test_without_a_seed_a_counter_begins_at_zero(app):
    client = TestClient(app)
    client.post("/increment_counter", json={"count": 2})
    assert shown(client) == 2
    assert reward(client, expected_count=2) == 1.0
    assert shown(TestClient(app)) == 0


def test_the_count_that_was_asked_for_is_worth_one(app):
    client = session(app, 3)
    client.post("/increment_counter", json={"count": 2})
    assert reward(client, expected_count=5) == 1.0


def test_another_count_is_worth_nothing(app):
    client = session(app, 3)
    client.post("/increment_counter", json={"count": 1})
    assert reward(client, expected_count=5) == 0.0


def test_a_counter_that_nobody_touched_is_worth_nothing(app):
    assert reward(session(app, 3), expected_count=5) == 0.0


def test_a_session_without_a_counter_is_a_failure_and_not_a_score(app):
    answer = TestClient(app).post("/verify", json={**ANSWERED, "expected_count": 1})
    assert answer.status_code == 400
    assert "hint: call /seed_session first" in answer.json()["detail"]


@pytest.mark.parametrize("body", [{}, {"count": "many"}])
def test_an_increment_that_is_no_number_leaves_the_counter_alone(app, body):
    client = session(app, 3)
    assert client.post("/increment_counter", json=body).status_code == 422
    assert shown(client) == 3


def test_responses_cannot_be_scored_again_later(app):
    assert TestClient(app).get("/reverify_mode").json() == "unsupported"


async def test_fifty_sessions_at_once_do_not_mix():
    async def play(client, number):
        seeded = await client.post("counter", "/seed_session", json={"initial_count": 1000 * number})
        for _ in range(number):
            answer = await client.post("counter", "/increment_counter", json={"count": 1}, cookies=seeded.cookies)
            await raise_for_status(answer)
            await asyncio.sleep(0)
        body = {**ANSWERED, "expected_count": 1001 * number}
        scored = await client.post("counter", "/verify", json=body, cookies=seeded.cookies)
        return (await get_response_json(scored))["reward"]

    async with running(counter=ExampleSessionStateMgmtResourcesServer) as client:
        rewards = await asyncio.gather(*(play(client, number) for number in range(50)))
    assert rewards == [1.0] * 50


@pytest.mark.parametrize("row", generate_data.rows(), ids=lambda row: str(row["expected_count"]))
async def test_the_gold_answer_of_every_row_passes(row):
    servers = {"counter": ExampleSessionStateMgmtResourcesServer, "agent": (SimpleAgent, REFS)}
    async with running(**servers, policy_model=scripted_model(*generate_data.solution(row))) as client:
        rollout = await get_response_json(await client.post("agent", "/run", json=row))

    *_, count, _ = rollout["response"]["output"]
    assert count["output"] == f'{{"count":{row["expected_count"]}}}'
    assert rollout["reward"] == 1.0


async def test_a_rollout_that_leaves_out_an_increment_is_worth_nothing():
    servers = {"counter": ExampleSessionStateMgmtResourcesServer, "agent": (SimpleAgent, REFS)}
    async with running(**servers, policy_model=scripted_model("All done!")) as client:
        rollout = await get_response_json(await client.post("agent", "/run", json=generate_data.rows()[0]))
    assert rollout["reward"] == 0.0


def test_rows_offer_both_tools():
    for row in generate_data.rows():
        params = NeMoGymResponseCreateParamsNonStreaming.model_validate(row["responses_create_params"])
        assert [tool["name"] for tool in params.tools] == ["increment_counter", "get_counter_value"]
        assert set(row) == {"responses_create_params", "initial_count", "expected_count"}
