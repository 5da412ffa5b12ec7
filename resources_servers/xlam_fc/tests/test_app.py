# SPDX-License-Identifier: Apache-2.0
"""Function calls: exactly the expected ones are worth 1, and none is carried out."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, asked, reply, running, scripted_model, tool_call
from resources_servers.xlam_fc import generate_data
from resources_servers.xlam_fc.app import XlamFcResourcesServer
from resources_servers.xlam_fc.matching import Call, count_matches
from responses_api_agents.simple_agent.app import SimpleAgent

TEA = ("start_timer", {"minutes": 4, "label": "tea"})
LIGHT = ("set_light", {"room": "hall", "percent": 50})
EXPECTED = [{"name": name, "arguments": arguments} for name, arguments in (TEA, LIGHT)]


async def verify(*parts: Any, expected: Any = EXPECTED) -> dict[str, Any]:
    calls = [tool_call(*part) if isinstance(part, tuple) else part for part in parts]
    body = {"responses_create_params": asked("?"), "response": reply(*calls), "expected_answers": expected}
    async with running(xlam_fc=XlamFcResourcesServer) as client:
        answer = await client.post("xlam_fc", "/verify", json=body)
        assert answer.status == 200, await answer.text()
        return await get_response_json(answer)


async def score(*parts: Any, expected: Any = EXPECTED) -> float:
    return (await verify(*parts, expected=expected))["reward"]


async def test_all_expected_calls_in_any_order_are_worth_one():
    assert await score(TEA, LIGHT) == 1.0
    assert await score("I do both.", LIGHT, TEA) == 1.0
    assert await score(("start_timer", {"label": "tea", "minutes": 4.0}), LIGHT) == 1.0


@pytest.mark.parametrize("more", [{"color": "red"}, {"color": None}])
async def test_arguments_that_were_not_asked_for_do_not_matter(more):
    assert await score(TEA, ("set_light", {**LIGHT[1], **more})) == 1.0


async def test_the_result_names_the_calls_and_counts_them():
    result = await verify(LIGHT, ("set_light", {"room": "attic"}), tool_call("now", "{no"))
    assert {name: result[name] for name in ("num_expected", "num_predicted", "num_correct", "reward")} == {
        "num_expected": 2,
        "num_predicted": 3,
        "num_correct": 1,
        "reward": 0.0,
    }
    assert result["predicted_calls"] == [
        {"name": "set_light", "arguments": LIGHT[1]},
        {"name": "set_light", "arguments": {"room": "attic"}},
        {"name": "now", "arguments": {}},
    ]


async def test_where_no_call_is_expected_none_may_be_made():
    assert await score("There is nothing to do.", expected=[]) == 1.0
    assert await score(TEA, expected=[]) == 0.0


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ("start_timer(minutes=4, label='tea'); set_light(room='hall', percent=50)",),
        (TEA,),
        (TEA, TEA),
        (TEA, LIGHT, LIGHT),
        (TEA, ("set_light", {"room": "hall", "percent": "50"})),
        (TEA, ("set_light", {"room": "hall"})),
        (TEA, ("set_light", {"room": " hall", "percent": 50})),
        (TEA, ("Set_Light", LIGHT[1])),
        (TEA, ("set_lights", LIGHT[1])),
        (TEA, tool_call("set_light", "{no")),
        (TEA, tool_call("set_light", "[50]")),
        (TEA, tool_call("set_light", '["room", "percent"]')),
        (TEA, tool_call("set_light", '"room percent"')),
        (TEA, tool_call("set_light", "7")),
        (TEA, tool_call("set_light", "null")),
        (TEA, tool_call("set_light", '{"room": "hall", "percent": NaN}')),
    ],
)
async def test_anything_else_is_worth_nothing(parts):
    assert await score(*parts) == 0.0


async def test_expected_calls_may_be_json_text():
    text = '[{"name": "start_timer", "arguments": "{\\"minutes\\": 4, \\"label\\": \\"tea\\"}"}]'
    assert await score(TEA, expected=text) == 1.0
    assert await score(("now", {}), expected=[{"name": "now"}]) == 1.0
    assert await score(("now", {"zone": "utc"}), expected=[{"name": "now", "arguments": "no JSON"}]) == 1.0


@pytest.mark.parametrize("expected", ["[", "{}", None, [{"arguments": {}}], [{"name": "x", "arguments": "[]"}]])
async def test_what_are_no_calls_is_refused(expected):
    body = {"responses_create_params": asked("?"), "response": reply("x"), "expected_answers": expected}
    async with running(xlam_fc=XlamFcResourcesServer) as client:
        assert (await client.post("xlam_fc", "/verify", json=body)).status == 422


async def test_rollouts_at_once_are_one_turn_each_and_no_call_is_carried_out():
    refs = agent_config("xlam_fc", max_steps=1)

    async def played(row: dict[str, Any], *calls: Any) -> Any:
        model = scripted_model(reply(*(tool_call(*call) for call in calls)))
        servers = {"xlam_fc": XlamFcResourcesServer, "agent": (SimpleAgent, refs), "policy_model": model}
        async with running(**servers) as client:
            return await get_response_json(await client.post("agent", "/run", json=row))

    rows = generate_data.all_rows()[:9]
    right = await asyncio.gather(*(played(row, *generate_data.solution(row)) for row in rows))
    wrong = await asyncio.gather(*(played(row, ("get_forecast", {"city": "Rome", "days": 1})) for row in rows))
    assert [one["reward"] for one in right] == [1.0] * 9
    assert [one["reward"] for one in wrong] == [0.0] * 9
    assert "not carried out" in right[0]["response"]["output"][-1]["output"]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text() | st.integers(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=10,
)
CALL = st.builds(Call, st.text(), st.dictionaries(st.text(), JSON, max_size=3))
CALLS = st.lists(CALL, max_size=4, unique_by=lambda call: call.name)


@given(CALLS, st.randoms())
@settings(max_examples=40, deadline=None)
def test_any_calls_are_found_in_another_order_and_only_once(calls, random):
    shuffled = random.sample(calls, len(calls))
    assert count_matches(shuffled, calls) == len(calls)
    assert count_matches(shuffled, calls + calls) == len(calls)


async def test_true_is_one_and_a_megabyte_is_compared():
    assert await score(("x", {"a": 1}), expected=[{"name": "x", "arguments": {"a": True}}]) == 1.0
    long = ("start_timer", {"minutes": 4, "label": "tea" * 350_000})
    assert await score(long, LIGHT) == 0.0
