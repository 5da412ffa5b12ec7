# SPDX-License-Identifier: Apache-2.0
"""Sessions work in worlds of their own, and a response is worth what its end state is like."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.server_utils import ServerClient, get_response_json
from nemo_gym.testing import agent_config, asked, build_server, reasoning, reply, running, scripted_model, tool_call
from resources_servers.workplace_assistant import generate_data
from resources_servers.workplace_assistant.app import (
    WorkplaceAssistantResourcesServer,
    WorkplaceAssistantVerifyRequest,
)
from resources_servers.workplace_assistant.toolkits import TOOLS, replay
from resources_servers.workplace_assistant.world import World
from responses_api_agents.simple_agent.app import SimpleAgent

SERVER = "workplace_assistant"
SEND = "email_send_email"
MAIL = {"recipient": "hiro.tanaka@harborlight.example", "subject": "Lunch", "body": "At noon."}
WORLD = {SERVER: WorkplaceAssistantResourcesServer}
REFS = agent_config(SERVER, max_steps=6)
ROWS = generate_data.split_rows("validation")


def truth(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, str]]:
    return [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]


def body(*said: Any, ground_truth: Any = None, **row: Any) -> dict[str, Any]:
    task = {"id": 0, "category": "workplace_assistant_email", "environment_name": SERVER, "world": "harborlight", **row}
    expected = truth((SEND, MAIL)) if ground_truth is None else ground_truth
    return {"responses_create_params": asked("?"), "response": reply(*said), "ground_truth": expected, **task}


async def reward(*said: Any, **row: Any) -> Any:
    async with running(**WORLD) as client:
        return (await get_response_json(await client.post(SERVER, "/verify", json=body(*said, **row))))["reward"]


async def use(client: ServerClient, cookies: Any, tool: str, **arguments: Any) -> Any:
    answer = await client.post(SERVER, f"/{tool}", json=arguments, cookies=cookies)
    assert answer.status == 200
    return (await get_response_json(answer))["output"]


async def seeded(client: ServerClient, **row: Any) -> Any:
    return (await client.post(SERVER, "/seed_session", json=row)).cookies


# --- the reward -------------------------------------------------------------------------------------------------------


async def test_the_calls_of_the_task_are_worth_one():
    assert await reward(tool_call(SEND, MAIL), "Done.") == 1.0


async def test_the_way_to_the_end_does_not_matter():
    look, wrong = tool_call("email_search_emails", {"query": "lunch"}), tool_call(SEND, {"recipient": "nobody"})
    unknown, broken = tool_call("email_burn", {}), tool_call(SEND, "{not json")
    assert await reward(look, wrong, unknown, broken, tool_call(SEND, MAIL)) == 1.0


@pytest.mark.parametrize(
    "said",
    [
        (),
        ("",),
        ("I have sent it.",),
        (reasoning("send it"),),
        (tool_call(SEND, {**MAIL, "body": "At one."}),),
        (tool_call(SEND, MAIL), tool_call(SEND, MAIL)),
        (tool_call(SEND, MAIL), tool_call("email_delete_email", {"email_id": "00000007"})),
        (tool_call(SEND, json.dumps([MAIL])),),
        (tool_call(SEND, {**MAIL, "cc": "x"}),),
    ],
)
async def test_another_end_is_worth_nothing(said):
    assert await reward(*said) == 0.0


async def test_case_does_not_matter_in_words():
    assert await reward(tool_call(SEND, {key: value.upper() for key, value in MAIL.items()})) == 1.0


async def test_case_matters_in_names_of_a_fixed_set():
    move = {"task_id": "00000003", "field": "list_name"}
    wished = truth(("project_management_update_task", {**move, "new_value": "Completed"}))
    said = tool_call("project_management_update_task", {**move, "new_value": "completed"})
    assert await reward(said, ground_truth=wished) == 0.0


async def test_the_order_of_new_rows_counts():
    other = {**MAIL, "subject": "Dinner"}
    wished = truth((SEND, MAIL), (SEND, other))
    assert await reward(tool_call(SEND, MAIL), tool_call(SEND, other), ground_truth=wished) == 1.0
    assert await reward(tool_call(SEND, other), tool_call(SEND, MAIL), ground_truth=wished) == 0.0


async def test_a_plot_is_part_of_the_end():
    plot = {"time_min": "2023-10-01", "time_max": "2023-10-08", "value_to_plot": "total_visits", "plot_type": "bar"}
    wished = truth(("analytics_create_plot", plot))
    assert await reward(tool_call("analytics_create_plot", plot), ground_truth=wished) == 1.0
    assert await reward(tool_call("analytics_create_plot", {**plot, "plot_type": "line"}), ground_truth=wished) == 0.0


async def test_a_task_that_changes_nothing_is_done_by_changing_nothing():
    assert await reward("There are 3.", ground_truth=[]) == 1.0
    assert await reward(tool_call(SEND, MAIL), ground_truth=[]) == 0.0


async def test_names_with_an_mcp_prefix_are_known():
    assert await reward(tool_call(f"mcp__{SERVER}__{SEND}", MAIL)) == 1.0


async def test_the_reply_has_no_fields_of_the_row():
    async with running(**WORLD) as client:
        result = await get_response_json(await client.post(SERVER, "/verify", json=body("x", colour="red")))
    assert result.keys() == BaseVerifyResponse.model_fields.keys()


async def test_scoring_needs_no_session():
    server = build_server(WorkplaceAssistantResourcesServer)
    request = WorkplaceAssistantVerifyRequest.model_validate(body(tool_call(SEND, MAIL)))
    assert (await server.verify(request)).reward == 1.0
    assert await server.get_reverify_mode() == "stateless"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ({"name": "email_burn", "arguments": "{}"}, "name"),
        ({"name": SEND, "arguments": "{"}, "arguments"),
        ({"name": SEND, "arguments": "[]"}, "arguments"),
    ],
)
@pytest.mark.parametrize("path", ["/seed_session", "/verify"])
async def test_a_task_that_cannot_be_scored_is_refused_by_name(call, field, path):
    async with running(**WORLD) as client:
        refused = await client.post(SERVER, path, json=body("x", ground_truth=[call]))
        assert refused.status == 422
        assert (await get_response_json(refused))["detail"][0]["loc"] == ["body", "ground_truth", 0, field]


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_tools_need_a_session():
    async with running(**WORLD) as client:
        refused = await client.post(SERVER, f"/{SEND}", json=MAIL)
        assert refused.status == 400
        assert "/seed_session" in (await get_response_json(refused))["detail"]


async def test_sessions_do_not_see_each_other():
    async with running(**WORLD) as client:

        async def one(number: int) -> Any:
            cookies = await seeded(client)
            for step in range(3):
                await use(client, cookies, SEND, **{**MAIL, "subject": f"session{number} step{step}"})
                await asyncio.sleep(0)
            return await use(client, cookies, "email_search_emails", query="session", page_size=10)

        for number, found in enumerate(await asyncio.gather(*map(one, range(20)))):
            assert [email["subject"] for email in found["emails"]] == [f"session{number} step{n}" for n in (2, 1, 0)]


async def test_a_tool_that_does_not_exist_says_so():
    async with running(**WORLD) as client:
        assert "does not exist" in await use(client, await seeded(client), "email_burn")


async def test_a_session_is_over_when_it_is_scored():
    server = build_server(WorkplaceAssistantResourcesServer)
    async with running(**{SERVER: server}) as client:
        cookies = await seeded(client)
        assert len(server._worlds) == 1
        await client.post(SERVER, "/verify", json=body("x"), cookies=cookies)
        assert len(server._worlds) == 0
        assert (await client.post(SERVER, f"/{SEND}", json=MAIL, cookies=cookies)).status == 400


async def test_seeding_again_begins_anew():
    async with running(**WORLD) as client:
        cookies = await seeded(client)
        await use(client, cookies, SEND, **MAIL)
        await client.post(SERVER, "/seed_session", json={}, cookies=cookies)
        assert await use(client, cookies, "email_search_emails", query="lunch noon") == "No emails found."


# --- the tasks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS[:10], ids=lambda row: row["category"])
async def test_an_agent_that_makes_no_mistake_solves_a_task_in_its_six_steps(row):
    turns = generate_data.solution(row)
    model = scripted_model(*turns)
    async with running(**WORLD, agent=(SimpleAgent, REFS), policy_model=model) as client:
        rollout = await get_response_json(await client.post("agent", "/run", json=row))
    assert rollout["reward"] == 1.0
    assert len(model.requests) == len(turns) <= 6


def test_every_task_has_a_solution_that_works_and_that_changes_something():
    for row in ROWS:
        calls = [turn for turn in generate_data.solution(row) if not isinstance(turn, str)]
        world, failed = replay(calls)
        assert failed == []
        assert not world.is_like(World())


def test_the_tasks_cover_all_toolkits_and_take_several_steps():
    assert len(ROWS) == 100
    toolkits = ("email", "calendar", "analytics", "project_management", "customer_relationship_manager")
    assert {row["category"] for row in ROWS} == {f"workplace_assistant_{name}" for name in toolkits}
    used = {call["name"] for row in ROWS for call in row["ground_truth"]}
    assert {name for name, tool in TOOLS.items() if tool.writes} <= used
    assert sum(len(row["ground_truth"]) > 1 for row in ROWS) >= 90


def test_no_task_is_in_two_sets():
    texts = [
        row["responses_create_params"]["input"][-1]["content"]
        for split in ("example", "validation")
        for row in generate_data.split_rows(split)
    ]
    assert len(set(texts)) == len(texts) == 105


# --- whatever a model may say -----------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
arguments = st.dictionaries(
    st.sampled_from(sorted({name for tool in TOOLS.values() for name in tool.arguments})) | st.text(max_size=5),
    scalars | st.sampled_from(["00000001", "2023-11-30", "Completed", "a@b.example"]) | st.lists(scalars, max_size=2),
    max_size=6,
)


@given(st.lists(st.tuples(st.sampled_from(sorted(TOOLS)) | st.text(max_size=5), arguments), max_size=5))
@settings(max_examples=50, deadline=None)
def test_any_calls_lead_to_some_end(calls):
    world, _ = replay(calls)
    assert world.is_like(world)
    assert world.is_like(World()) == World().is_like(world)


async def test_a_megabyte_is_an_email_like_any_other():
    huge = {**MAIL, "body": "ab c" * 250_000}
    assert await reward(tool_call(SEND, huge), ground_truth=truth((SEND, huge))) == 1.0
    assert await reward(tool_call(SEND, "[" * 1_000_000)) == 0.0
    assert await reward("x" * 1_000_000) == 0.0
