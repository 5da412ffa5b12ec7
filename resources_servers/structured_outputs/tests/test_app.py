# SPDX-License-Identifier: Apache-2.0
"""A reply is in its format and fits the strict schema, or the response says what is wrong."""

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings, strategies as st

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, asked, build_server, reasoning, reply, running, scripted_model, tool_call
from resources_servers.structured_outputs import app as app_module, generate_data
from resources_servers.structured_outputs.app import StructuredOutputsResourcesServer
from resources_servers.structured_outputs.checking import check_text, check_value
from resources_servers.structured_outputs.tests import odd_checks
from responses_api_agents.simple_agent.app import SimpleAgent

SHARED = pytest.mark.asyncio(loop_scope="module")
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
)
GOOD = {"name": "Ada", "age": 36, "tags": ["a", "b"]}
CALL = {"response_mode": "tool_call", "tool_name": "save", "tool_payload_key": "record"}
REFS = agent_config("outputs")


def body(said: Any, **row: Any) -> dict[str, Any]:
    response = reply(said) if isinstance(said, str) else said
    return {"responses_create_params": asked("?"), "response": response, "schema_str": SCHEMA, **row}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client():
    async with running(outputs=build_server(StructuredOutputsResourcesServer)) as client:
        yield client


async def scored(client: Any, said: Any, **row: Any) -> dict[str, Any]:
    answer = await client.post("outputs", "/verify", json=body(said, **row))
    assert answer.status == 200, await answer.text()
    return await get_response_json(answer)


@SHARED
@pytest.mark.parametrize(
    ("schema_type", "said"),
    [
        ("json", json.dumps(GOOD)),
        ("json", f"<think>{{}}</think>\n{json.dumps(GOOD)}\n"),
        ("yaml", "name: Ada\nage: 36\ntags:\n- a\n- b"),
        ("toml", 'name = "Ada"\nage = 36\ntags = ["a", "b"]'),
    ],
)
async def test_a_reply_that_fits_is_worth_one(client, schema_type, said):
    result = await scored(
        client, said, schema_type=schema_type, problem_type="p", schema_repr="r", schema_fields_count=3
    )
    assert (result["reward"], result["error_type"], result["error_message"]) == (1.0, None, None)
    echoed = ("schema_str", "schema_type", "response_mode", "problem_type", "schema_repr", "schema_fields_count")
    assert [result[name] for name in echoed] == [SCHEMA, schema_type, "text", "p", "r", 3]


@SHARED
@pytest.mark.parametrize("declared", ["", '<?xml version="1.0"?>\n'])
async def test_in_xml_the_schema_names_the_root(client, declared):
    said = f"{declared}<r><name>Ada</name><age> 36 </age><tags><tag>a</tag><tag>b</tag></tags></r>"
    schema = json.dumps({"type": "object", "properties": {"r": json.loads(SCHEMA)}})
    assert (await scored(client, said, schema_type="xml", schema_str=schema))["reward"] == 1.0
    assert (await scored(client, said, schema_type="xml"))["error_type"] == "validation_error"


async def test_xml_is_not_coerced_where_the_config_says_so():
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    async with running(outputs=(StructuredOutputsResourcesServer, {"xml_coerce_types": False})) as client:
        assert (await scored(client, "<a>1</a>", schema_type="xml", schema_str=schema))["reward"] == 0.0


@SHARED
async def test_messages_are_read_as_one_text(client):
    said = json.dumps(GOOD)
    assert (await scored(client, reply(said[:9], said[9:])))["reward"] == 1.0


@SHARED
async def test_a_message_is_at_most_200_characters_long(client):
    assert len((await scored(client, json.dumps({**GOOD, "x" * 1000: 1})))["error_message"]) == 200


def test_metrics_break_the_reward_down_by_what_describes_a_row():
    row = {"schema_type": "json", "problem_type": "p", "schema_repr": "r", "num_tools": 2, "has_distractors": True}
    rollouts = [[{**row, "reward": 1.0}, {**row, "reward": 0.0}], [{"schema_type": "csv", "reward": 1.0}]]
    assert build_server(StructuredOutputsResourcesServer).compute_metrics(rollouts) == {
        "mean/reward_json": 0.5,
        "mean/reward_p": 0.5,
        "mean/reward_repr_r": 0.5,
        "mean/reward_num_tools_2": 0.5,
        "mean/reward_has_distractors_true": 0.5,
        "mean/reward_csv": 1.0,
    }


@SHARED
@pytest.mark.parametrize(
    ("said", "error_type"),
    [
        ("", "empty_response"),
        ("<think>{}</think>", "empty_response"),
        ("Here it is: {}", "parse_error"),
        (f"```json\n{json.dumps(GOOD)}\n```", "parse_error"),
        ('{"name": NaN}', "parse_error"),
        (json.dumps({**GOOD, "more": 1}), "validation_error"),
        (json.dumps({"name": "Ada"}), "validation_error"),
        (json.dumps({**GOOD, "age": "36"}), "validation_error"),
    ],
)
async def test_any_other_reply_is_worth_nothing_and_says_why(client, said, error_type):
    result = await scored(client, said)
    assert (result["reward"], result["error_type"]) == (0.0, error_type)
    assert result["error_message"]


@SHARED
@pytest.mark.parametrize("response", [reply(), reply(reasoning("{}")), reply(tool_call("x", "{no"))])
async def test_no_text_is_an_empty_response(client, response):
    result = await scored(client, response)
    assert (result["reward"], result["error_type"]) == (0.0, "empty_response")


@SHARED
@pytest.mark.parametrize(
    ("parts", "error_type"),
    [
        ([tool_call("save", {"record": GOOD})], None),
        (["I save it.", tool_call("save", {"record": GOOD}), "Done."], None),
        ([tool_call("save", {"record": json.dumps(GOOD)})], "validation_error"),
        (["no call"], "missing_tool_call"),
        ([], "missing_tool_call"),
        ([tool_call("save", {"record": GOOD}), tool_call("save", {"record": GOOD})], "multiple_tool_calls"),
        ([tool_call("keep", {"record": GOOD})], "wrong_tool_name"),
        ([tool_call("save", "{no")], "tool_arguments_parse_error"),
        ([tool_call("save", "")], "tool_arguments_parse_error"),
        ([tool_call("save", '{"record": NaN}')], "tool_arguments_parse_error"),
        ([tool_call("save", "[1]")], "missing_tool_payload_key"),
        ([tool_call("save", {"other": GOOD})], "missing_tool_payload_key"),
        ([tool_call("save", {"record": {}})], "validation_error"),
    ],
)
async def test_a_tool_call_must_be_the_right_one(client, parts, error_type):
    result = await scored(client, reply(*parts), **CALL)
    assert (result["reward"], result["error_type"]) == (float(error_type is None), error_type)


@SHARED
async def test_without_a_payload_key_the_arguments_are_the_value(client):
    row = {"response_mode": "tool_call", "tool_name": None, "tool_payload_key": None}
    assert (await scored(client, reply(tool_call("any", GOOD)), **row))["reward"] == 1.0


@SHARED
async def test_an_error_of_the_model_is_told_apart(client):
    failed = reply(error={"code": "server_error", "message": "no"}, status="failed")
    assert (await scored(client, failed, **CALL))["error_type"] == "api_error"
    assert (await scored(client, failed))["error_type"] == "empty_response"


@SHARED
@pytest.mark.parametrize(
    ("schema", "error_type"),
    [
        ("{no", "schema_error"),
        ("[]", "validation_error"),
        ('{"type": "nothing"}', "validation_error"),
        ('{"$ref": "#/nowhere"}', "validation_error"),
        ('{"$ref": "http://127.0.0.1:1/schema.json"}', "validation_error"),
    ],
)
async def test_a_schema_that_cannot_be_used_fits_nothing_and_nothing_is_fetched(client, schema, error_type):
    assert (await scored(client, "{}", schema_str=schema))["error_type"] == error_type


@SHARED
@pytest.mark.parametrize("row", [{"schema_type": "ini"}, {"response_mode": "song"}, {"schema_str": None}])
async def test_a_malformed_row_is_refused_by_name(client, row):
    refused = await client.post("outputs", "/verify", json=body("{}", **row))
    assert refused.status == 422
    assert (await get_response_json(refused))["detail"][0]["loc"] == ["body", *row]


@SHARED
async def test_many_at_once_keep_their_answers(client):
    async def one(number: int) -> str | None:
        return (await scored(client, json.dumps({**GOOD, "age": number if number % 2 else "x"})))["error_type"]

    expected = [None if number % 2 else "validation_error" for number in range(64)]
    assert await asyncio.gather(*map(one, range(64))) == expected


async def test_a_tool_that_a_row_offers_can_be_called():
    row = generate_data.rows()[1]
    name, arguments = generate_data.solution(row)[0]
    servers = {"outputs": StructuredOutputsResourcesServer, "agent": (SimpleAgent, REFS)}
    model = scripted_model(reply(tool_call(name, arguments)), "Saved.")
    async with running(**servers, policy_model=model) as client:
        rollout = await get_response_json(await client.post("agent", "/run", json=row))
    assert (rollout["reward"], rollout["error_message"]) == (1.0, None)


async def test_a_check_that_takes_too_long_is_stopped():
    schema = json.dumps({"type": "string", "pattern": "^(a+)+$"})
    config = {"check_timeout_seconds": 0.5}
    async with running(outputs=(StructuredOutputsResourcesServer, config)) as client:
        result = await scored(client, json.dumps("a" * 60 + "!"), schema_str=schema)
    assert (result["reward"], result["error_type"]) == (0.0, "parse_error")
    assert "too long" in result["error_message"]


async def test_a_reply_that_takes_its_reader_down_is_not_read(monkeypatch):
    monkeypatch.setattr(app_module, "check_text", odd_checks.check_text)
    async with running(outputs=StructuredOutputsResourcesServer) as client:
        assert (await scored(client, "die"))["error_type"] == "parse_error"
        assert (await scored(client, json.dumps(GOOD)))["reward"] == 1.0


def test_every_gold_answer_passes():
    for row in generate_data.all_rows():
        turn = generate_data.solution(row)[0]
        if isinstance(turn, str):
            finding = check_text(turn, row["schema_type"], row["schema_str"])
        else:
            finding = check_value(turn[1]["record"], row["schema_str"])
        assert finding.error_type is None, (row, finding)


ODD = st.text() | st.from_regex(r"([{}\[\]<>/&*!|:,\"'=#-]|\w|\n| ){0,80}", fullmatch=True)


@given(ODD)
@settings(max_examples=40, deadline=None)
def test_whatever_is_said_is_found_to_fit_or_not(said):
    for schema_type in ("json", "yaml", "xml", "toml", "csv"):
        assert check_text(said, schema_type, SCHEMA).error_type in (None, "parse_error", "validation_error")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    )
)
@settings(max_examples=40, deadline=None)
def test_whatever_a_tool_is_given_is_found_to_fit_or_not(value):
    assert check_value(value, SCHEMA).error_type == "validation_error"


@pytest.mark.parametrize("schema_type", ["json", "yaml", "xml", "toml", "csv"])
@pytest.mark.parametrize("said", ["[" * 1_000_000, "<a>" * 300_000, "a,b\n" * 250_000, '"' * 1_000_001])
def test_a_megabyte_of_nonsense_does_not_fit(schema_type, said):
    assert check_text(said, schema_type, SCHEMA).error_type in ("parse_error", "validation_error")
