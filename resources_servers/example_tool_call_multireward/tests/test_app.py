# SPDX-License-Identifier: Apache-2.0
"""A reward of three parts: each is given or not, and the reward is their sum."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, asked, reasoning, reply, running, scripted_model, tool_call
from resources_servers.example_tool_call_multireward import generate_data
from resources_servers.example_tool_call_multireward.app import ExampleToolCallMultirewardResourcesServer as Server
from responses_api_agents.simple_agent.app import SimpleAgent

ROW = generate_data.rows()[0]
RIGHT = {"restaurant": "Vela", "guests": 4, "hour": 19}


async def scored(*parts: Any, **row: Any) -> tuple[float, float, float, float]:
    body = {**ROW, "response": reply(*parts), **row}
    async with running(multireward=Server) as client:
        answer = await client.post("multireward", "/verify", json=body)
        assert answer.status == 200, await answer.text()
        result = await get_response_json(answer)
    components = result["reward_components"]
    assert set(components) == {"correctness", "schema_valid", "format"}
    assert result["reward"] == sum(components.values())
    return components["correctness"], components["schema_valid"], components["format"], result["reward"]


def booking(**changes: Any) -> Any:
    return tool_call("book_table", {**RIGHT, **changes})


@pytest.mark.parametrize(
    ("parts", "scores"),
    [
        ([booking()], (1, 1, 1, 3)),
        (["I book it.", booking()], (1, 1, 0, 2)),
        ([booking(), ""], (1, 1, 0, 2)),
        ([reasoning("I book it."), booking()], (1, 1, 1, 3)),
        ([booking(guests=5)], (0, 1, 1, 2)),
        ([booking(guests="4")], (0, 1, 1, 2)),
        ([booking(hour=19.0)], (1, 1, 1, 3)),
        ([booking(note="by the window")], (1, 1, 1, 3)),
        ([booking(), booking()], (1, 1, 0, 2)),
        ([booking(guests="4"), booking()], (1, 1, 0, 2)),
        ([tool_call("book_table", {"guests": 4}), booking()], (1, 0, 0, 1)),
        ([tool_call("book_table", {"guests": 4})], (0, 0, 1, 1)),
        ([tool_call("send_parcel", {"to": "Ines", "speed": "faster"})], (0, 1, 1, 2)),
        ([tool_call("no_such_tool", {})], (0, 1, 1, 2)),
        ([tool_call("book_table", "{no")], (0, 0, 1, 1)),
        ([tool_call("book_table", "[4]")], (0, 0, 1, 1)),
        (["book_table('Vela', 4, 19)"], (0, 0, 0, 0)),
        ([reasoning("book_table")], (0, 0, 0, 0)),
        ([], (0, 0, 0, 0)),
    ],
)
async def test_each_part_is_scored_by_itself(parts, scores):
    assert await scored(*parts) == scores


async def test_a_row_without_tools_requires_no_arguments():
    assert await scored(booking(), responses_create_params=asked("?")) == (1, 1, 1, 3)


async def test_a_row_without_an_expected_call_has_no_right_one():
    assert await scored(booking(), expected_call=None) == (0, 1, 1, 2)


async def test_a_missing_argument_is_null():
    expected = {"name": "book_table", "arguments": {**RIGHT, "note": None}}
    assert (await scored(booking(), expected_call=expected))[0] == 1


async def test_the_parts_and_the_calls_are_fields_of_the_result():
    async with running(multireward=Server) as client:
        body = {**ROW, "response": reply(booking(guests=5), tool_call("x", "{no"))}
        result = await get_response_json(await client.post("multireward", "/verify", json=body))
    assert (result["correctness"], result["schema_valid"], result["format"]) == (0.0, 1.0, 0.0)
    assert result["predicted_calls"] == [
        {"name": "book_table", "arguments": {**RIGHT, "guests": 5}},
        {"name": "x", "arguments": {}},
    ]


async def test_rollouts_at_once_have_the_full_reward_for_the_expected_call():
    refs = agent_config("multireward", max_steps=1)

    async def played(row: dict[str, Any]) -> Any:
        servers = {
            "multireward": Server,
            "agent": (SimpleAgent, refs),
            "policy_model": scripted_model(*generate_data.solution(row)),
        }
        async with running(**servers) as client:
            return await get_response_json(await client.post("agent", "/run", json=row))

    rollouts = await asyncio.gather(*map(played, generate_data.rows() * 3))
    assert [one["reward"] for one in rollouts] == [3.0] * 15
    assert rollouts[0]["response"]["output"][1]["output"] == '{"output":"book_table: done"}'


@given(st.text(), st.text())
@settings(max_examples=25, deadline=None)
def test_whatever_is_called_has_a_reward_in_range(name, arguments):
    assert 0 <= asyncio.run(scored(tool_call(name, arguments)))[3] <= 3


async def test_a_megabyte_is_scored():
    assert (await scored(booking(restaurant="x" * 1_000_000)))[3] == 2
