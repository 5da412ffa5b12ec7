# SPDX-License-Identifier: Apache-2.0
"""Values of synonyms, looked up and handed in: what is right, and in which ways an answer can be wrong."""

import json
import re
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings, strategies as st

from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyResponse
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient, get_response_json
from nemo_gym.testing import agent_config, asked, reply, running, scripted_model, tool_call
from resources_servers.example_multi_step import generate_data
from resources_servers.example_multi_step.app import ExampleMultiStepResourcesServer, ExampleMultiStepVerifyRequest
from responses_api_agents.simple_agent.app import SimpleAgent

DATA = Path(generate_data.__file__).parent / "data"
REFS = agent_config("synonyms")
EXPECTED, TERM_VALUE = [407, 711], 299
TASK = {
    "id": 0,
    "expected_synonyms": ["Warm", "Blazing"],
    "expected_synonym_values": EXPECTED,
    "minefield_label": "Hot",
    "minefield_label_value": TERM_VALUE,
}


def make_server():
    return ExampleMultiStepResourcesServer(
        config=BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name=""),
        server_client=MagicMock(spec=ServerClient),
    )


@pytest.fixture
def client():
    return TestClient(make_server().setup_webserver())


def hand_in(values):
    return tool_call("extract_synonym_values", {"synonym_values": values})


async def scored(*parts):
    body = ExampleMultiStepVerifyRequest(
        **TASK, responses_create_params=asked("What are the synonym values of 'Hot'?"), response=reply(*parts)
    )
    return await make_server().verify(body)


@pytest.mark.parametrize(("synonym", "value"), [("Warm", 407), ("Blazing", 711), ("Hot", 299), ("", 0), ("é", 233)])
def test_the_value_of_a_synonym_is_the_sum_of_its_character_codes(client, synonym, value):
    assert client.post("/get_synonym_value", json={"synonym": synonym}).json() == {"synonym_value": value}


def test_handing_in_tells_nothing_about_the_answer(client):
    answer = client.post("/extract_synonym_values", json={"synonym_values": [1, 2]})
    assert answer.json() == {"success": True}


def test_values_that_are_no_numbers_are_refused(client):
    assert client.post("/extract_synonym_values", json={"synonym_values": ["Warm"]}).status_code == 422


async def test_all_values_in_order_are_right():
    result = await scored(hand_in(EXPECTED), "Done.")
    assert (result.reward, result.accuracy, result.set_overlap) == (1.0, True, 1.0)
    assert result.parsed_synonym_values == EXPECTED
    assert not result.original_term_minefield_hit
    assert not result.order_instruction_following_failure


async def test_the_last_answer_counts():
    assert (await scored(hand_in([1]), hand_in(EXPECTED))).reward == 1.0
    assert (await scored(hand_in(EXPECTED), hand_in([1]))).reward == 0.0


async def test_values_in_the_wrong_order_are_wrong_by_their_order_only():
    result = await scored(hand_in(EXPECTED[::-1]))
    assert (result.reward, result.accuracy, result.set_overlap) == (0.0, False, 1.0)
    assert result.order_instruction_following_failure


async def test_numbers_in_texts_are_read_but_not_right():
    result = await scored(hand_in([str(value) for value in EXPECTED]))
    assert (result.reward, result.parsed_synonym_values) == (0.0, EXPECTED)


async def test_whole_floats_are_numbers_like_others():
    assert (await scored(hand_in([float(value) for value in EXPECTED]))).reward == 1.0


async def test_the_term_itself_is_a_mine_too():
    assert (await scored(hand_in(["Hot", 711]))).original_term_minefield_hit


async def test_half_of_the_values_are_half_an_overlap():
    result = await scored(hand_in([407, 1]))
    assert (result.reward, result.set_overlap) == (0.0, 0.5)
    assert not result.order_instruction_following_failure


async def test_the_value_of_the_term_itself_is_a_mine():
    result = await scored(hand_in([TERM_VALUE, 711]))
    assert result.original_term_minefield_hit
    assert result.reward == 0.0


@pytest.mark.parametrize("parts", [(), ("407 and 711",), (tool_call("get_synonym_value", {"synonym": "Warm"}),)])
async def test_a_response_that_hands_in_nothing_is_worth_nothing(parts):
    result = await scored(*parts)
    assert (result.reward, result.parsed_synonym_values, result.set_overlap) == (0.0, [], 0.0)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{not json",
        "[407, 711]",
        "null",
        "{}",
        '{"synonym_values": null}',
        '{"synonym_values": 407}',
        '{"synonym_values": ["Warm"]}',
        '{"synonym_values": [[407, 711]]}',
        '{"synonym_values": [407.5, 711]}',
    ],
)
async def test_an_answer_that_cannot_be_read_is_worth_nothing(arguments):
    result = await scored(hand_in(EXPECTED), tool_call("extract_synonym_values", arguments))
    assert (result.reward, result.parsed_synonym_values) == (0.0, [])


@settings(max_examples=50, deadline=None)
@given(arguments=st.text(max_size=30) | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps))
async def test_nothing_a_model_writes_breaks_the_verifier(arguments):
    assert (await scored(tool_call("extract_synonym_values", arguments))).reward == 0.0


def test_a_task_without_expected_values_is_refused(client):
    task = {**TASK, "expected_synonym_values": [], "responses_create_params": {"input": "hi"}}
    answer = client.post("/verify", json={**task, "response": reply("x").model_dump()})
    assert answer.status_code == 422


def test_the_reply_of_the_verifier_has_the_fields_of_the_record(client):
    task = {**TASK, "responses_create_params": {"input": "hi"}}
    answer = client.post("/verify", json={**task, "response": reply(hand_in(EXPECTED)).model_dump()})
    assert set(answer.json()) == {
        *BaseVerifyResponse.model_fields,
        "parsed_synonym_values",
        "accuracy",
        "set_overlap",
        "original_term_minefield_hit",
        "order_instruction_following_failure",
    }


def test_responses_can_be_scored_again_later(client):
    assert client.get("/reverify_mode").json() == "stateless"


@pytest.mark.parametrize("row", generate_data.rows(), ids=lambda row: row["minefield_label"])
async def test_the_gold_answer_of_every_row_passes(row):
    servers = {"synonyms": ExampleMultiStepResourcesServer, "agent": (SimpleAgent, REFS)}
    async with running(**servers, policy_model=scripted_model(*generate_data.solution(row))) as client:
        rollout = await get_response_json(await client.post("agent", "/run", json=row))

    looked_up = [json.loads(item["output"]) for item in rollout["response"]["output"] if "output" in item]
    assert looked_up == [*({"synonym_value": value} for value in row["expected_synonym_values"]), {"success": True}]
    assert rollout["reward"] == 1.0


@pytest.mark.parametrize("split", generate_data.SIZES)
def test_the_shipped_rows_are_those_of_the_generator(split, tmp_path):
    generate_data.write(tmp_path / "rows.jsonl", split)
    assert (tmp_path / "rows.jsonl").read_bytes() == (DATA / f"{split}.jsonl").read_bytes()


def test_train_begins_with_the_examples_and_shares_no_term_with_validation():
    train, validation = generate_data.split_rows("train"), generate_data.split_rows("validation")
    assert train[:5] == generate_data.rows()
    terms = [{row["minefield_label"] for row in rows} for rows in (train, validation)]
    assert terms[0].isdisjoint(terms[1])
    assert len({row["id"] for row in train + validation}) == 120


@pytest.mark.parametrize("row", generate_data.rows(), ids=lambda row: row["minefield_label"])
def test_a_row_can_be_solved_from_its_prompt(row):
    params = NeMoGymResponseCreateParamsNonStreaming.model_validate(row["responses_create_params"])
    listed = re.findall(r"^The term '(\w+)' has a synonym '(\w+)'\.$", params.input[0].content, re.MULTILINE)
    assert len(listed) == len(set(listed)) == 193
    assert [synonym for term, synonym in listed if term == row["minefield_label"]] == row["expected_synonyms"]
    assert f"'{row['minefield_label']}'" in params.input[1].content
    assert [tool["name"] for tool in params.tools] == ["get_synonym_value", "extract_synonym_values"]


@pytest.mark.parametrize("row", generate_data.rows(), ids=lambda row: row["minefield_label"])
def test_the_values_of_a_row_cannot_be_mistaken_for_each_other(row):
    values = [*row["expected_synonym_values"], row["minefield_label_value"]]
    assert len(set(values)) == len(values) >= 3


def test_a_word_has_one_place_in_the_list_of_synonyms():
    known = generate_data.synonyms()
    words = [*known, *(synonym for listed in known.values() for synonym in listed)]
    assert len(set(words)) == len(words)


README_TABLE = re.findall(
    r"^\| `(\[.*\])` \| (.*) \| (.*) \| (.*) \| (.*) \|$", (DATA.parent / "README.md").read_text(), re.M
)


@pytest.mark.parametrize(("answer", "reward", "overlap", "order", "mine"), README_TABLE)
async def test_answers_are_scored_as_the_readme_says(answer, reward, overlap, order, mine):
    row = generate_data.rows()[0]
    result = await make_server().verify(
        ExampleMultiStepVerifyRequest(**row, response=reply(hand_in(json.loads(answer))))
    )
    assert result.reward == float(reward)
    assert result.set_overlap == pytest.approx(float(overlap), abs=5e-4)
    assert result.order_instruction_following_failure is json.loads(order)
    assert result.original_term_minefield_hit is json.loads(mine)


def test_the_readme_shows_four_answers():
    assert len(README_TABLE) == 4
