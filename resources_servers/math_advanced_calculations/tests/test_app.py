# SPDX-License-Identifier: Apache-2.0
"""Odd calculators: their laws, and a verifier that wants every result from a tool."""

import asyncio
import math
from typing import Any

import pytest

from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.openai_utils import NeMoGymFunctionCallOutput
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, asked, reply, running, scripted_model
from resources_servers.math_advanced_calculations import generate_data
from resources_servers.math_advanced_calculations.app import MathAdvancedCalculationsResourcesServer as Server
from responses_api_agents.simple_agent.app import SimpleAgent

TRUTH = [2.75, -1234.5]


def answered(*outputs: str) -> list[NeMoGymFunctionCallOutput]:
    return [NeMoGymFunctionCallOutput(call_id=f"call_{number}", output=output) for number, output in enumerate(outputs)]


async def score(*parts: Any, **row: Any) -> float:
    body = {"responses_create_params": asked("?"), "response": reply(*parts), "ground_truth": TRUTH, **row}
    async with running(calculators=Server) as client:
        answer = await client.post("calculators", "/verify", json=body)
        assert answer.status == 200, await answer.text()
        result = await get_response_json(answer)
        assert result.keys() == BaseVerifyResponse.model_fields.keys()
        return result["reward"]


FIRST, SECOND = '{"solution": 2.75}', '{"solution": -1234.5, "error": null}'


@pytest.mark.parametrize(
    ("outputs", "reward"),
    [
        ([FIRST, SECOND], 1.0),
        ([SECOND, FIRST], 1.0),
        ([FIRST, FIRST, '{"solution": 9}', SECOND], 1.0),
        (['{"solution": "2.75"}', SECOND], 1.0),
        ([FIRST], 0.0),
        (['{"solution": 2.7500000001}', SECOND], 0.0),
        (['{"solution": 2.75', SECOND], 0.0),
        (["2.75", SECOND], 0.0),
        (['{"solution": null, "error": "none"}', SECOND], 0.0),
        (['{"solution": [2.75]}', SECOND], 0.0),
        (["[2.75]", SECOND], 0.0),
        (["NaN", SECOND], 0.0),
        (['{"solution": 1' + "0" * 400 + "}", SECOND], 0.0),
        ([], 0.0),
    ],
)
async def test_every_result_must_come_from_a_tool_exactly(outputs, reward):
    assert await score(*answered(*outputs)) == reward


@pytest.mark.parametrize("said", ["They are 2.75 and -1234.5.", "I do not know.", "<think>2.75</think>"])
async def test_what_is_said_is_not_read(said):
    assert await score(said) == 0.0
    assert await score(*answered(FIRST, SECOND), said) == 1.0


async def test_a_number_near_a_result_does_not_do_without_a_tool():
    assert await score("15001.2", ground_truth=[15001.2]) == 0.0
    assert await score(*answered('{"solution": 15000}'), ground_truth=[15001.2]) == 0.0


@pytest.mark.parametrize("truth", [2.75, "2.75", "[2.75]", [2.75], ["2.75"]])
async def test_results_may_be_one_or_several_or_json(truth):
    assert await score(*answered(FIRST), ground_truth=truth) == 1.0
    assert await score(*answered('{"solution": 3}'), ground_truth=truth) == 0.0


@pytest.mark.parametrize("truth", [[], "two", "[", None, "[null]", "NaN"])
async def test_what_is_no_result_is_refused(truth):
    body = {"responses_create_params": asked("?"), "response": reply("2"), "ground_truth": truth}
    async with running(calculators=Server) as client:
        assert (await client.post("calculators", "/verify", json=body)).status == 422


LAWS = [
    ("add", {"a": 1, "b": 2}, 4.2),
    ("subtract", {"a": 5, "b": 1}, 1.0),
    ("multiply", {"a": 2, "b": 3}, 6.6),
    ("divide", {"a": 6, "b": 3}, 1.0),
    ("power", {"a": 2, "b": 1}, 8.0),
    ("log", {"a": 8, "base": 0.5}, 3.0),
    ("sin", {"radians": 0}, 1.0),
    ("cos", {"radians": 0}, 0.0),
    ("negate", {"a": 3}, 3.0),
    ("return_constant", {"a": 3}, 3.0),
    ("pi", {}, math.e),
]


async def test_the_laws_of_the_tools():
    assert {name for name, _, _ in LAWS} == {tool["name"] for tool in generate_data.tools()}
    async with running(calculators=Server) as client:
        for name, arguments, result in LAWS:
            said = await get_response_json(await client.post("calculators", f"/{name}", json=arguments))
            assert said["solution"] == pytest.approx(result)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("divide", {"a": 1, "b": 0}),
        ("log", {"a": -1, "base": 2}),
        ("log", {"a": 2, "base": -0.5}),
        ("power", {"a": 1e300, "b": 9}),
        ("power", {"a": -8, "b": 0.5}),
        ("power", {"a": 0, "b": -3}),
        ("multiply", {"a": 1e300, "b": 1e300}),
    ],
)
async def test_what_has_no_result_is_said_to_the_model(name, arguments):
    async with running(calculators=Server) as client:
        answer = await client.post("calculators", f"/{name}", json=arguments)
        said = await get_response_json(answer)
        assert (answer.status, said["solution"]) == (200, None)
        assert said["error"].startswith(f"{name} has no ")


async def test_arguments_that_are_no_numbers_are_refused():
    async with running(calculators=Server) as client:
        for wrong in ({"a": "x", "b": 1}, {"a": 1}, {"a": [1], "b": 1}):
            assert (await client.post("calculators", "/add", json=wrong)).status == 422


async def test_rollouts_at_once_find_their_results_with_the_tools():
    refs = agent_config("calculators")

    async def played(row: dict[str, Any]) -> float:
        servers = {
            "calculators": Server,
            "agent": (SimpleAgent, refs),
            "policy_model": scripted_model(*generate_data.solution(row)),
        }
        async with running(**servers) as client:
            return (await get_response_json(await client.post("agent", "/run", json=row)))["reward"]

    rewards = await asyncio.gather(*map(played, generate_data.all_rows()[:12]))
    assert rewards == [1.0] * 12
