# SPDX-License-Identifier: Apache-2.0
"""Lettered options: the letter that a reply chooses is found, and only the right one is worth anything."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, reasoning, reply, running, tool_call
from resources_servers.mcqa import generate_data
from resources_servers.mcqa.app import MCQAResourcesServer
from resources_servers.mcqa.extraction import extract_answer

OPTIONS = {"A": "nitrogen", "B": "oxygen", "C": "argon", "D": "carbon dioxide"}
ROW = {"options": [{letter: text} for letter, text in OPTIONS.items()], "expected_answer": "A"}


async def scored(said: Any, config: dict[str, Any] | None = None, **row: Any) -> dict[str, Any]:
    response = reply(said) if isinstance(said, str) else said
    body = {"responses_create_params": asked("?"), "response": response, **ROW, **row}
    async with running(mcqa=(MCQAResourcesServer, config or {})) as client:
        answer = await client.post("mcqa", "/verify", json=body)
        assert answer.status == 200, await answer.text()
        return await get_response_json(answer)


@pytest.mark.parametrize(
    "said",
    [
        r"\boxed{A}",
        r"First \boxed{B}, no: \boxed{A}",
        r"\boxed{\text{A}}",
        r"\boxed{A: nitrogen}",
        r"\boxed{A) nitrogen}",
        r"\boxed{A.}",
        r"\boxed{A- nitrogen}",
        r"\boxed{(A)}",
        r"<think>\boxed{B}</think>\boxed{A}",
    ],
)
async def test_the_right_letter_in_the_last_box_is_worth_one(said):
    result = await scored(said)
    assert (result["reward"], result["extracted_answer"], result["expected_answer"]) == (1.0, "A", "A")


@pytest.mark.parametrize(
    "said", [r"\boxed{B}", "A", "Answer: A", r"\boxed{nitrogen}", r"\boxed{AB}", r"\boxed{a}", r"\boxed{E}"]
)
async def test_a_strict_grader_takes_nothing_else(said):
    assert (await scored(said))["reward"] == 0.0


@pytest.mark.parametrize("response", [reply(), reply(""), reply(reasoning(r"\boxed{A}")), reply(tool_call("x", "{no"))])
async def test_no_answer_is_worth_nothing(response):
    result = await scored(response)
    assert (result["reward"], result["extracted_answer"]) == (0.0, None)


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        (r"\boxed{nitrogen}", "A"),
        (r"\boxed{\text{Carbon Dioxide}}", "D"),
        (r"\boxed{it is argon}", "C"),
        (r"\boxed{nitrogen and oxygen}", None),
        (r"\boxed{helium}", None),
        (r"\boxed{B}", "B"),
    ],
)
def test_a_lenient_box_may_hold_the_text_of_exactly_one_option(said, letter):
    assert extract_answer(said, OPTIONS, "lenient_boxed") == letter


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("Answer: A", "A"),
        ("**Answer:** (B)", "B"),
        ("the final answer is: c", "C"),
        ("Answer: B\nNo.\nAnswer: D. carbon dioxide", "D"),
        ("Answer: nitrogen", "A"),
        ("Answer: a gas called argon", "C"),
        ("A", None),
    ],
)
def test_an_answer_may_follow_a_colon(said, letter):
    assert extract_answer(said, OPTIONS, "lenient_answer_colon") == letter


@pytest.mark.parametrize("said", ["Answer: A, B", "Answer: A and C", "**Answer**: A/B", "Answer: (A) or (B)"])
async def test_a_list_of_letters_is_no_answer_where_the_config_says_so(said):
    config = {"grading_mode": "lenient_answer_colon_md"}
    assert (await scored(said, config))["extracted_answer"] is None
    assert (await scored("Answer: A", config))["reward"] == 1.0


async def test_the_configs_mode_overrides_that_of_the_row():
    lenient = {"grading_mode": "lenient_boxed"}
    assert (await scored(r"\boxed{nitrogen}", lenient, grading_mode="strict_single_letter_boxed"))["reward"] == 1.0


@pytest.mark.parametrize("pattern", [r"choice=(\w)", [r"nothing", r"choice=(\w)"]])
async def test_a_rows_own_pattern_comes_first_and_its_last_match_counts(pattern):
    said = r"Choice=B … CHOICE=A and \boxed{B}"
    assert (await scored(said, template_metadata={"output_regex": pattern}))["extracted_answer"] == "A"


async def test_a_pattern_that_finds_nothing_leaves_it_to_the_mode():
    assert (await scored(r"\boxed{A}", template_metadata={"output_regex": "choice=(.)"}))["reward"] == 1.0


@pytest.mark.parametrize("pattern", ["(", 3, [1]])
async def test_what_is_no_pattern_is_refused_by_name(pattern):
    body = {"responses_create_params": asked("?"), "response": reply("x"), **ROW}
    async with running(mcqa=MCQAResourcesServer) as client:
        refused = await client.post("mcqa", "/verify", json={**body, "template_metadata": {"output_regex": pattern}})
        assert refused.status == 422
        assert "output_regex" in await refused.text()


async def test_many_at_once_keep_their_answers():
    letters = "ABCD" * 16
    async with running(mcqa=MCQAResourcesServer) as client:

        async def one(letter: str) -> Any:
            body = {"responses_create_params": asked("?"), "response": reply(rf"\boxed{{{letter}}}"), **ROW}
            return (await get_response_json(await client.post("mcqa", "/verify", json=body)))["extracted_answer"]

        assert "".join(await asyncio.gather(*map(one, letters))) == letters


def test_every_gold_answer_passes():
    for row in generate_data.all_rows():
        options = {letter: text for option in row["options"] for letter, text in option.items()}
        (said,) = generate_data.solution(row)
        assert extract_answer(said, options, row["grading_mode"]) == row["expected_answer"]


ODD = st.text() | st.from_regex(r"(\\boxed\{|Answer:|\}|[A-D]|\\text\{|\s){0,200}")


@given(ODD)
@settings(max_examples=40, deadline=None)
def test_whatever_a_model_says_is_a_letter_or_nothing(said):
    for mode in ("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"):
        assert extract_answer(said, OPTIONS, mode, {"output_regex": r"(\w)$"}) in {None, *OPTIONS}


@pytest.mark.parametrize(
    "said", [r"\boxed{" * 50_000, "Answer: " * 100_000, "A" * 1_000_000, r"\boxed{" + "{" * 500_000]
)
def test_a_megabyte_of_nonsense_is_read_at_once(said):
    for mode in ("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"):
        assert extract_answer(said, OPTIONS, mode) is None
