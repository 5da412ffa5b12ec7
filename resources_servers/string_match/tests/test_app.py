# SPDX-License-Identifier: Apache-2.0
"""An answer is looked for where the row says, and must be equal to the expected one."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, reasoning, reply, running, tool_call
from resources_servers.string_match import generate_data
from resources_servers.string_match.app import StringMatchResourcesServer, extract_answer
from resources_servers.string_match.comparison import score_answer

MODES = ("boxed", "final_answer", "last_line", "full_response")


def body(said: Any, **row: Any) -> dict[str, Any]:
    response = reply(said) if isinstance(said, str) else said
    return {"responses_create_params": asked("?"), "response": response, "expected_answer": "Blue Sky", **row}


async def scored(said: Any, **row: Any) -> dict[str, Any]:
    async with running(string_match=StringMatchResourcesServer) as client:
        return await get_response_json(await client.post("string_match", "/verify", json=body(said, **row)))


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("boxed", r"\boxed{green}, no: \boxed{blue  sky}"),
        ("boxed", r"\boxed{\text{ \text{Blue Sky} }} and \boxed{cut off"),
        ("final_answer", "Final answer: green\nAnswer: Blue sky. "),
        ("final_answer", "Final  Answer：\n\nBlue sky..."),
        ("final_answer", r"The final answer is \boxed{Blue Sky}"),
        ("last_line", "It is\n\n  blue sky \n\n"),
        ("full_response", "<think>green?</think>BLUE SKY"),
    ],
)
async def test_the_expected_text_in_its_place_is_worth_one(mode, said):
    result = await scored(said, extraction_mode=mode)
    assert result["reward"] == 1.0
    assert result["extracted_answer"].casefold().split() == ["blue", "sky"]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("boxed", "blue sky"),
        ("boxed", r"\boxed{sky blue}"),
        ("final_answer", "blue sky"),
        ("final_answer", "**Final answer:** blue sky"),
        ("final_answer", "The final answer is: blue sky"),
        ("final_answer", r"Answer: green \boxed{blue sky}"),
        ("full_response", "**blue sky**"),
        ("last_line", "blue sky\nI think"),
        ("full_response", "It is blue sky"),
    ],
)
async def test_anything_else_is_worth_nothing(mode, said):
    assert (await scored(said, extraction_mode=mode))["reward"] == 0.0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("response", [reply(), reply(""), reply(reasoning("Blue Sky")), reply(tool_call("x", "{no"))])
async def test_no_answer_is_worth_nothing(mode, response):
    result = await scored(response, extraction_mode=mode)
    assert (result["reward"], result["extracted_answer"]) == (0.0, None)


@pytest.mark.parametrize(("said", "reward"), [(r"\boxed{Blue Sky}", 1.0), (r"\boxed{blue sky}", 0.0)])
async def test_case_counts_where_the_row_says_so(said, reward):
    assert (await scored(said, case_sensitive=True))["reward"] == reward


@pytest.mark.parametrize("said", ['"Blue Sky"', "Blue Sky.", "Blue  Sky"])
async def test_where_case_counts_every_character_does(said):
    assert (await scored(said, case_sensitive=True, extraction_mode="full_response"))["reward"] == 0.0


@pytest.mark.parametrize("said", ["Answer: .", r"\boxed{}", "no answer"])
async def test_an_empty_expectation_is_never_met(said):
    assert (await scored(said, expected_answer=""))["reward"] == 0.0


async def test_an_answer_is_looked_for_after_its_label_unless_the_row_says_otherwise():
    assert (await scored("Answer: Blue Sky"))["reward"] == 1.0


async def test_parts_and_messages_are_separate_lines():
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in ("It is", "Blue Sky")]
    response = reply("x").model_dump()
    response["output"][0]["content"] = parts
    assert (await scored(response, extraction_mode="last_line"))["extracted_answer"] == "Blue Sky"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("said", [r"<think>Answer: \boxed{Blue Sky}</think>", r"<think>Answer: \boxed{Blue Sky}"])
async def test_an_answer_in_the_thinking_alone_is_none(said, mode):
    assert (await scored(said, extraction_mode=mode))["reward"] == 0.0


@pytest.mark.parametrize("row", [{"expected_answer": None}, {"extraction_mode": "somewhere"}])
async def test_a_row_that_cannot_be_graded_is_refused_by_name(row):
    async with running(string_match=StringMatchResourcesServer) as client:
        refused = await client.post("string_match", "/verify", json=body("x", **row))
        assert refused.status == 422
        assert (await get_response_json(refused))["detail"][0]["loc"] == ["body", *row]


async def test_many_at_once_keep_their_answers():
    async with running(string_match=StringMatchResourcesServer) as client:

        async def one(number: int) -> Any:
            sent = body(rf"\boxed{{{number}}}", expected_answer=str(number))
            return (await get_response_json(await client.post("string_match", "/verify", json=sent)))["reward"]

        assert await asyncio.gather(*map(one, range(64))) == [1.0] * 64


async def test_every_gold_answer_passes():
    for row in generate_data.all_rows():
        (said,) = generate_data.solution(row)
        assert extract_answer(said, row["extraction_mode"]) == row["expected_answer"]


@given(st.text() | st.from_regex(r"(\\boxed\{|Final answer:|\}|\s|\w){0,200}"), st.sampled_from(MODES))
@settings(max_examples=50, deadline=None)
def test_whatever_a_model_says_is_a_text_or_nothing(said, mode):
    answer = extract_answer(said, mode)
    assert answer is None or answer in said
    assert score_answer(answer or "", said, case_sensitive=False) in (0.0, 0.98, 1.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "said",
    [
        r"\boxed{" * 50_000,
        r"\boxed{" + r"\text{" * 160_000 + "}" * 160_001,
        "Final answer: " * 70_000,
        "\n" * 1_000_000,
        "1" * 1_000_000,
    ],
)
def test_a_megabyte_of_nonsense_is_read_at_once(said, mode):
    answer = extract_answer(said, mode) or ""
    assert score_answer(answer, "Blue Sky", case_sensitive=False) == 0.0
    assert score_answer(said, "Blue Sky", case_sensitive=False) == 0.0
