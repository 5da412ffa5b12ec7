# SPDX-License-Identifier: Apache-2.0
"""Instructions on the form of a reply: each is checked, and the reward is for all of them or for a share."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, reasoning, reply, running, tool_call
from resources_servers.instruction_following import further, generate_data, ifeval
from resources_servers.instruction_following.app import InstructionFollowingResourcesServer
from resources_servers.instruction_following.instructions import CHECKS, Instruction
from resources_servers.instruction_following.tests.cases import ARGUMENTS, FOLLOWED, NOT_FOLLOWED

NO_COMMA, TITLE = "punctuation:no_comma", "detectable_format:title"


def metadata(*ids: str, **fields: Any) -> dict[str, Any]:
    return {"instruction_id_list": list(ids), "prompt": "?", "kwargs": [{}] * len(ids), **fields}


def body(said: Any, **row: Any) -> dict[str, Any]:
    response = reply(said) if isinstance(said, str) else said
    return {"responses_create_params": asked("?"), "response": response, "id": 1, **row}


async def scored(said: Any, **row: Any) -> dict[str, Any]:
    async with running(following=InstructionFollowingResourcesServer) as client:
        answer = await client.post("following", "/verify", json=body(said, **row))
        assert answer.status == 200, await answer.text()
        return await get_response_json(answer)


@pytest.mark.parametrize(
    ("mode", "said", "followed", "reward"),
    [
        ("binary", "<<On tea>> is good", [True, True], 1.0),
        ("binary", "<<On tea>>, then", [False, True], 0.0),
        ("fraction", "<<On tea>>, then", [False, True], 0.5),
        ("fraction", "tea, then", [False, False], 0.0),
        (None, "tea, then", [False, False], 0.0),
    ],
)
async def test_the_reward_is_for_all_instructions_or_for_a_share(mode, said, followed, reward):
    given_mode = {"grading_mode": mode} if mode else {}
    result = await scored(said, verifier_metadata=metadata(NO_COMMA, TITLE, **given_mode))
    assert (result["reward"], result["follow_instruction_list"]) == (reward, followed)
    assert result["follow_all_instructions"] is all(followed)
    assert result["verifier_metadata"]["instruction_id_list"] == [NO_COMMA, TITLE]


async def test_the_instructions_may_stand_beside_the_metadata():
    result = await scored("a, b", **metadata(NO_COMMA, TITLE, grading_mode="fraction"))
    assert result["reward"] == 0.0
    assert result["verifier_metadata"] == metadata(NO_COMMA, TITLE, grading_mode="fraction")


@pytest.mark.parametrize("response", [reply(), reply(""), reply(reasoning("x")), reply("x", tool_call("y", "{no"))])
async def test_no_text_follows_nothing(response):
    result = await scored(response, verifier_metadata=metadata(NO_COMMA, grading_mode="fraction"))
    assert (result["reward"], result["follow_instruction_list"]) == (0.0, [False])


async def test_the_last_message_counts_and_thinking_does_not():
    said = reply("a, b", "<think>well, well</think>no commas here")
    assert (await scored(said, verifier_metadata=metadata(NO_COMMA)))["reward"] == 1.0


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (metadata("keywords:nothing"), "keywords:nothing"),
        (metadata("length_constraints:number_words"), "num_words"),
        (metadata("keywords:frequency", kwargs=[{"keyword": "a", "frequency": "many"}]), "frequency"),
        (metadata("language:response_language", kwargs=[{"language": "tlh"}]), "tlh"),
        (metadata(NO_COMMA, TITLE, kwargs=[{}]), "kwargs for 1"),
        (metadata(), "instruction_id_list"),
        (metadata(NO_COMMA, grading_mode="half"), "grading_mode"),
    ],
)
async def test_a_row_that_cannot_be_graded_is_refused_by_name(wrong, named):
    async with running(following=InstructionFollowingResourcesServer) as client:
        refused = await client.post("following", "/verify", json=body("x", verifier_metadata=wrong))
        assert refused.status == 422
        assert named in await refused.text()


async def test_arguments_that_are_null_or_of_other_instructions_do_not_count():
    kwargs = [{"num_words": None, "keywords": ["tea"], "language": None, "relation": "at least"}, None]
    result = await scored("Tea", verifier_metadata=metadata("keywords:existence", NO_COMMA, kwargs=kwargs))
    assert result["follow_instruction_list"] == [True, True]


async def test_many_at_once_keep_their_answers():
    async with running(following=InstructionFollowingResourcesServer) as client:

        async def one(number: int) -> list[bool]:
            kwargs = [{"num_words": number, "relation": "less than"}]
            sent = body("w " * 32, verifier_metadata=metadata("length_constraints:number_words", kwargs=kwargs))
            return (await get_response_json(await client.post("following", "/verify", json=sent)))["reward"]

        assert await asyncio.gather(*map(one, range(1, 65))) == [float(number > 32) for number in range(1, 65)]


@pytest.mark.parametrize(
    ("name", "said"), [("change_case:english_lowercase", "ok"), ("change_case:english_capital", "OK")]
)
def test_a_text_too_short_to_tell_its_language_is_followed_by_its_case(name, said):
    assert Instruction(name, {}).is_followed(said)
    assert not Instruction(name, {}).is_followed(said.swapcase())


def test_keywords_are_regular_expressions_and_a_broken_one_is_not_found():
    assert Instruction("keywords:existence", {"keywords": ["t.a"]}).is_followed("toast and tea")
    assert not Instruction("keywords:existence", {"keywords": ["(tea"]}).is_followed("(tea")


async def test_blank_lines_at_the_ends_are_part_of_the_reply():
    kwargs = [{"num_paragraphs": 1, "nth_paragraph": 1, "first_word": "tea"}]
    asked_for = metadata("length_constraints:nth_paragraph_first_word", kwargs=kwargs)
    assert (await scored("tea\n\n", verifier_metadata=asked_for))["reward"] == 1.0
    assert (await scored("\n\ntea", verifier_metadata=asked_for))["reward"] == 0.0


def test_all_instructions_of_ifeval_are_known():
    assert len(ifeval.CHECKS) == 25
    assert not set(ifeval.CHECKS) & set(further.CHECKS)


def test_every_instruction_has_cases():
    assert set(FOLLOWED) == set(NOT_FOLLOWED) == set(CHECKS)


@pytest.mark.parametrize(("name", "said"), [(name, said) for name, texts in FOLLOWED.items() for said in texts])
def test_a_reply_that_follows_is_found_to(name, said):
    assert Instruction(name, ARGUMENTS.get(name)).is_followed(said)


@pytest.mark.parametrize(("name", "said"), [(name, said) for name, texts in NOT_FOLLOWED.items() for said in texts])
def test_a_reply_that_does_not_follow_is_found_not_to(name, said):
    assert not Instruction(name, ARGUMENTS.get(name)).is_followed(said)


def test_every_gold_answer_passes():
    for row in generate_data.all_rows():
        asked_for = row["verifier_metadata"]
        (said,) = generate_data.solution(row)
        for name, kwargs in zip(asked_for["instruction_id_list"], asked_for["kwargs"], strict=True):
            assert Instruction(name, kwargs).is_followed(said), (row["id"], name)


ODD = st.text() | st.from_regex(r"(\*{1,6}|<<|>>|\[|\]|\n|[.!?]|P\.S\.|-|\"|\{|\w| ){0,100}", fullmatch=True)


@given(ODD)
@settings(max_examples=50, deadline=None)
def test_whatever_is_said_follows_or_does_not(said):
    for name in CHECKS:
        assert Instruction(name, ARGUMENTS.get(name)).is_followed(said) in (True, False)


@pytest.mark.parametrize("piece", ["[", "*", "<<", "\n", " ", "a. ", "```json", "Mr. ", "{", "p.", "a"])
def test_a_lot_of_nonsense_is_read_in_linear_time(piece):
    said = piece * (30_000 // len(piece))
    for name in CHECKS:
        assert Instruction(name, ARGUMENTS.get(name)).is_followed(said) in (True, False)
