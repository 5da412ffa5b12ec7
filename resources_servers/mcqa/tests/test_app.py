# SPDX-License-Identifier: Apache-2.0
"""Lettered options: the letter that a reply chooses is found, and only the right one is worth anything."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, reasoning, reply, running, tool_call
from resources_servers.mcqa import generate_data
from resources_servers.mcqa.app import MCQAResourcesServer
from resources_servers.mcqa.extraction import SEARCHED_CHARACTERS, extract_answer

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
        r"\boxed{[A]}",
        r"\boxed{$A$}",
        r"\boxed{**A**}",
        r"\boxed{{A}}",
        r"\boxed{'A'}",
        r"\boxed{A\,}",
        r"\boxed{1A}",
        r"\boxed{A.nitrogen}",
        r"\boxed{A:nitrogen}",
        r"\boxed{A-nitrogen}",
        r"\boxed{\text{A. }\text{nitrogen}}",
        r"\boxed{\boxed{A}}",
        r"<think>\boxed{B}</think>\boxed{A}",
    ],
)
async def test_the_right_letter_in_the_last_box_is_worth_one(said):
    result = await scored(said)
    assert (result["reward"], result["extracted_answer"], result["expected_answer"]) == (1.0, "A", "A")


@pytest.mark.parametrize(
    "said",
    [
        r"\boxed{B}",
        "A",
        "Answer: A",
        r"\boxed{nitrogen}",
        r"\boxed{AB}",
        r"\boxed{A, B}",
        r"\boxed{a}",
        r"\boxed{E}",
        r"\boxed{A nitrogen}",
        r"\boxed{(A) nitrogen}",
        r"\boxed{Option A}",
        r"\boxed{\textbf{A}}",
        r"\boxed {A}",
        r"\fbox{A}",
        r"\boxed{A} or \boxed{cut off",
        r"\boxed{A}, as in \boxed{}",
    ],
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
        (r"\boxed{(A) nitrogen}", "A"),
        (r"\boxed{a, nitrogen}", "A"),
        (r"\boxed{nitrogen and oxygen}", None),
        (r"\boxed{helium}", None),
        (r"\boxed{B}", "B"),
    ],
)
def test_a_lenient_box_may_hold_the_text_of_exactly_one_option(said, letter):
    assert extract_answer(said, OPTIONS, "lenient_boxed") == letter


def test_an_option_text_within_another_is_ambiguous():
    options = {"A": "carbon", "B": "carbon dioxide"}
    assert extract_answer(r"\boxed{Carbon Dioxide}", options, "lenient_boxed") is None
    assert extract_answer(r"\boxed{carbon}", options, "lenient_boxed") == "A"


@pytest.mark.parametrize("said", [r"\boxed{not oxygen}", r"\boxed{it isn't oxygen}", r"\boxed{neither oxygen}"])
def test_an_option_that_is_ruled_out_is_not_chosen(said):
    assert extract_answer(said, OPTIONS, "lenient_boxed") is None
    assert extract_answer(said, {"A": "neither oxygen", "B": "it isn't oxygen", "C": "not oxygen"}, "lenient_boxed")


@pytest.mark.parametrize("mode", ["strict_single_letter_boxed", "lenient_boxed"])
@pytest.mark.parametrize("said", [r"\boxed{B: A}", r"\boxed{B) (A)}", r"\boxed{B. A.}", r"\boxed{B - $A$}"])
def test_a_label_before_the_letter_of_another_option_chooses_neither(said, mode):
    assert extract_answer(said, OPTIONS, mode) is None
    assert extract_answer(said.replace("A", "B"), OPTIONS, "strict_single_letter_boxed") == "B"


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("Answer: A", "A"),
        ("ANSWER:\nb", "B"),
        (r"The answer: \text{ c }", "C"),
        ("Answer: Carbon  dioxide", "D"),
        ("Answer: B\nNo.\nAnswer: D", "B"),
        ("Answer: (A)", None),
        ("Answer: A.", None),
        ("**Answer: A**", None),
        ("**Answer:** A", None),
        ("Answer: A, B", None),
        ("Answer: Option A", None),
        (r"Answer: \boxed{A}", None),
        ("Answer\uff1aA", None),
        ("The answer is: A", None),
        ("Answer: E", None),
        ("A", None),
    ],
)
def test_a_letter_or_an_option_alone_may_follow_the_first_colon(said, letter):
    assert extract_answer(said, OPTIONS, "lenient_answer_colon") == letter


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("Answer: A", "A"),
        ("answer: a", "A"),
        ("**Answer: C**", "C"),
        ("__Answer__: A", "A"),
        ("**Answer:** `B`", "B"),
        ("Answer: (D)", "D"),
        ("Answer: $D$", "D"),
        ("Answer: B/B", "B"),
        ("Answer: Option A", "A"),
        ("Answer: the answer is C", "C"),
        ("Answer: B because C is not valid", "B"),
        ("Answer: C\nthen Answer: hmm", "C"),
        ("Answer: A/B\nAnswer: C", "C"),
        (r"\boxed{\text{Answer: D}}", "D"),
        ("Answer\uff1a\uff22", "B"),
        ("Answer: \u09ac", "B"),
        ("Answer: argon", None),
        ("Answer: E", None),
        ("The answer is: A", None),
        (r"\boxed{A}", None),
    ],
)
def test_the_last_answer_that_names_a_letter_counts_in_markdown_and_prose(said, letter):
    assert extract_answer(said, OPTIONS, "lenient_answer_colon_md") == letter


@pytest.mark.parametrize(
    "said", ["Answer: A, B", "Answer: a or b", "Answer: A and C", "**Answer**: A/B", "Answer: A B", "Answer: A, A, B"]
)
async def test_a_list_of_letters_is_no_answer(said):
    config = {"grading_mode": "lenient_answer_colon_md"}
    assert (await scored(said, config))["extracted_answer"] is None


def test_a_list_of_letters_in_brackets_is_no_answer_either():
    assert extract_answer("Answer: (A) or (B)", OPTIONS, "lenient_answer_colon_md") is None


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("Antwort: B", "B"),
        ("antwort:\n\n(B)", "B"),
        ("Antwort\uff1a \uff22", "B"),
        ("Answer: A\nAntwort: B", "B"),
        ("Antwort: B\nAnswer: A", "A"),
        ("Antwort: ja\n\\boxed{B}", "B"),
    ],
)
async def test_a_prompt_in_another_language_may_name_its_own_prefix(said, letter):
    config = {"grading_mode": "lenient_answer_colon_md"}
    assert (await scored(said, config, template_metadata={"answer_prefix": "Antwort:"}))["extracted_answer"] == letter


async def test_a_prefix_is_read_in_no_other_mode():
    assert (await scored("Antwort: A", template_metadata={"answer_prefix": "Antwort:"}))["reward"] == 0.0


@pytest.mark.parametrize("said", [r"<think>\boxed{A}</think>", r"<think>\boxed{A}", r"<think>Answer: A</think>"])
async def test_an_answer_in_the_thinking_alone_is_none(said):
    assert (await scored(said))["extracted_answer"] is None
    assert (await scored(said, {"grading_mode": "lenient_answer_colon_md"}))["extracted_answer"] is None


@pytest.mark.parametrize("mode", ["lenient_boxed", "lenient_answer_colon"])
async def test_an_option_without_a_text_is_not_there(mode):
    options = [{"A": "nitrogen", "B": None}, {"C": None}, {"D": "carbon dioxide"}]
    assert (await scored(r"Answer: D \boxed{B}", options=options, grading_mode=mode))["extracted_answer"] is None
    said = "Answer: nitrogen\n\\boxed{nitrogen}"
    assert (await scored(said, options=options, grading_mode=mode))["reward"] == 1.0


@pytest.mark.parametrize("row", [{"expected_answer": None}, {"expected_answer": " "}, {"options": None}])
async def test_a_row_without_an_answer_or_options_is_worth_nothing(row):
    assert (await scored(r"\boxed{A}", **row))["reward"] == 0.0


async def test_letters_are_compared_in_upper_case():
    result = await scored(r"\boxed{A}", options=[{"a": "x"}, {"b": "y"}], expected_answer=" a ")
    assert (result["reward"], result["expected_answer"]) == (1.0, "A")


async def test_the_configs_mode_overrides_that_of_the_row():
    lenient = {"grading_mode": "lenient_boxed"}
    assert (await scored(r"\boxed{nitrogen}", lenient, grading_mode="strict_single_letter_boxed"))["reward"] == 1.0


@pytest.mark.parametrize("pattern", [r"choice=(\w)", [r"nothing", r"choice=(\w)"]])
async def test_a_rows_own_pattern_comes_first_and_its_last_match_counts(pattern):
    said = r"Choice=B … CHOICE=A and \boxed{B}"
    assert (await scored(said, template_metadata={"output_regex": pattern}))["extracted_answer"] == "A"


async def test_a_pattern_that_finds_nothing_leaves_it_to_the_mode():
    assert (await scored(r"\boxed{A}", template_metadata={"output_regex": "choice=(.)"}))["reward"] == 1.0


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("choice=a", "A"),
        ("choice=\u0628", "B"),
        ("choice=\uff23", "C"),
        ("choice=Argon", "C"),
        ("choice=Z \\boxed{A}", "Z"),
        ("choice=helium \\boxed{A}", "A"),
    ],
)
async def test_a_capture_is_a_letter_of_any_script_or_an_option(said, letter):
    result = await scored(said, template_metadata={"output_regex": r"choice=(\w+)"})
    assert result["extracted_answer"] == letter


async def test_of_several_groups_the_first_that_holds_something_counts():
    assert (await scored("A C", template_metadata={"output_regex": r"(A|B)\s+(C|D)"}))["extracted_answer"] == "A"
    assert (await scored("y=A", template_metadata={"output_regex": r"x=(\w)|y=(\w)"}))["extracted_answer"] == "A"


async def test_a_pattern_that_does_not_compile_leaves_it_to_the_mode(caplog):
    metadata = {"output_regex": ["([", r"choice=(\w)"]}
    assert (await scored(r"\boxed{A}", template_metadata=metadata))["reward"] == 1.0
    assert (await scored("choice=A", template_metadata=metadata))["reward"] == 1.0
    assert "'([' is not a regular expression" in caplog.text


@pytest.mark.parametrize("pattern", [3, [1], {"a": "b"}, True])
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
        assert extract_answer(said, OPTIONS, mode, {"answer_prefix": "A"}) in {None, *OPTIONS}


@pytest.mark.parametrize(
    "said", [r"\boxed{" * 50_000, "Answer: " * 100_000, "A" * 1_000_000, r"\boxed{" + "{" * 500_000]
)
def test_a_megabyte_of_nonsense_is_read_at_once(said):
    for mode in ("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"):
        assert extract_answer(said, OPTIONS, mode) is None


def test_a_rows_pattern_is_searched_near_the_end():
    said = "choice=A" + " " * SEARCHED_CHARACTERS + "choice=B"
    assert extract_answer(said, OPTIONS, "lenient_boxed", {"output_regex": r"choice=(\w)"}) == "B"
    assert extract_answer(said[:-8], OPTIONS, "lenient_boxed", {"output_regex": r"choice=(\w)"}) is None
