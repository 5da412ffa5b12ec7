# SPDX-License-Identifier: Apache-2.0
"""A judge is asked what the config says, in as many ways as it says, and its verdicts make the reward."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, build_server, reasoning, reply, running, scripted_model, tool_call
from resources_servers.equivalence_llm_judge import generate_data
from resources_servers.equivalence_llm_judge.app import LLMJudgeResourcesServer
from resources_servers.equivalence_llm_judge.extraction import extract, fill_template

YES, NO = "Same. [[A=B]]", "Not. [[A!=B]]"
JUDGE = {"judge_model_server": {"type": "responses_api_models", "name": "judge"}}
PATTERN = {"template_metadata": {"output_regex": r"Answer: (.*)"}}


def body(said: Any, **row: Any) -> dict[str, Any]:
    response = reply(said) if isinstance(said, str) else said
    row = {"question": "Why?", "expected_answer": "Because", **row}
    return {"responses_create_params": asked("Please: Why?"), "response": response, **row}


async def scored(said: Any, *verdicts: Any, config: dict[str, Any] | None = None, **row: Any) -> Any:
    judge = scripted_model(*verdicts)
    async with running(equivalence=(LLMJudgeResourcesServer, {**JUDGE, **(config or {})}), judge=judge) as client:
        answer = await client.post("equivalence", "/verify", json=body(said, **row))
        assert answer.status == 200, await answer.text()
        return await get_response_json(answer), [request.input[-1].content for request in judge.requests]


async def test_the_judge_sees_question_and_both_answers():
    result, (seen,) = await scored("It is so.", YES)
    assert result["reward"] == 1.0
    assert seen.index("Why?") < seen.index("Because") < seen.index("It is so.")
    (evaluation,) = result["judge_evaluations"]
    assert set(evaluation) == {"responses_create_params", "response", "verdict_label"}
    assert (evaluation["verdict_label"], result["expected_answer"]) == ("[[A=B]]", "Because")


async def test_a_judge_that_does_not_agree_gives_nothing():
    result, _ = await scored("It is so.", NO)
    assert (result["reward"], result["judge_evaluations"][0]["verdict_label"]) == (0.0, "[[A!=B]]")


async def test_a_verdict_that_contains_the_other_is_itself():
    config = {"judge_equal_label": "CORRECT", "judge_not_equal_label": "INCORRECT"}
    assert (await scored("It is so.", "It is INCORRECT.", config=config))[0]["reward"] == 0.0
    assert (await scored("It is so.", "Not INCORRECT: CORRECT.", config=config))[0]["reward"] == 1.0


@pytest.mark.parametrize(
    ("verdict", "reward"), [(f"{NO} No: {YES}", 1.0), (f"{YES} No: {NO}", 0.0), (f"<think>{YES}</think>{NO}", 0.0)]
)
async def test_the_last_label_is_the_verdict(verdict, reward):
    assert (await scored("It is so.", verdict))[0]["reward"] == reward


@pytest.mark.parametrize("response", [reply(), reply(""), reply(reasoning("x")), reply(tool_call("x", "{no"))])
async def test_no_text_is_worth_nothing_and_the_judge_is_not_asked(response):
    result, seen = await scored(response)
    assert (result["reward"], result["judge_evaluations"], seen) == (0.0, [], [])
    assert result["failure_reason"] == "empty_final_answer"


@pytest.mark.parametrize("said", ["<think>It is so.</think>", "<think>It is so."])
async def test_thinking_is_not_an_answer(said):
    result, seen = await scored(said)
    assert (result["reward"], result["failure_reason"], seen) == (0.0, "empty_final_answer", [])


async def test_only_the_last_message_is_judged():
    _, (seen,) = await scored(reply("Hm, maybe.", "It is so."), YES)
    assert "It is so." in seen
    assert "maybe" not in seen
    result, seen = await scored(reply("It is so.", ""))
    assert (result["reward"], seen) == (0.0, [])


async def test_a_reply_over_the_limit_is_worth_nothing_and_the_judge_is_not_asked():
    config = {"max_answer_chars": 3}
    assert (await scored("abc", YES, config=config))[0]["reward"] == 1.0
    result, seen = await scored("abcd", config=config)
    assert (result["reward"], seen) == (0.0, [])
    assert result["failure_reason"].startswith("final_answer_too_long: 4 characters")


@pytest.mark.parametrize(("verdicts", "reward"), [([YES, YES], 1.0), ([YES, NO], 0.25), ([NO], 0.0)])
async def test_the_judge_may_be_asked_in_both_orders(verdicts, reward):
    config = {"check_twice_swap": True, "reward_if_swap_fails": 0.25}
    result, seen = await scored("It is so.", *verdicts, config=config)
    assert (result["reward"], len(result["judge_evaluations"])) == (reward, len(verdicts))
    if len(seen) == 2:
        assert seen[1].index("It is so.") < seen[1].index("Because")


async def test_a_rows_own_pattern_finds_the_answer():
    pattern = {"template_metadata": {"output_regex": r"Answer: (\w+)", "template_id": "x"}}
    result, (seen,) = await scored("Hm, maybe.\nAnswer: first\nAnswer: second", YES, **pattern)
    assert result["reward"] == 1.0
    assert "second" in seen
    assert "maybe" not in seen
    assert "first" not in seen


@pytest.mark.parametrize(("verdicts", "reward"), [([NO, YES], 0.5), ([NO, NO], 0.0)])
async def test_the_whole_reply_is_a_second_chance(verdicts, reward):
    result, seen = await scored("Hm, maybe.\nAnswer: x", *verdicts, **PATTERN)
    assert (result["reward"], len(seen)) == (reward, 2)
    assert "maybe" not in seen[0]
    assert "maybe" in seen[1]


@pytest.mark.parametrize(
    ("config", "row"),
    [
        ({"check_full_generation_on_fail": False}, PATTERN),
        ({"use_per_record_regex": False}, PATTERN),
        ({"extraction_length_threshold": 3}, PATTERN),
        ({"response_extract_regex": r"Answer: (.*)"}, {}),
        ({}, {}),
    ],
)
async def test_only_an_answer_that_a_rows_own_pattern_found_has_a_second_chance(config, row):
    result, seen = await scored("Hm.\nAnswer: x", NO, config=config, **row)
    assert (result["reward"], len(seen)) == (0.0, 1)


async def test_the_second_chance_comes_also_if_the_same_text_is_judged_again():
    result, seen = await scored("Hm.", NO, YES, **PATTERN)
    assert (result["reward"], len(seen)) == (0.5, 2)


async def test_the_second_chance_may_decide_where_the_first_call_did_not():
    result, _ = await scored("Hm.\nAnswer: x", "I cannot say.", YES, **PATTERN)
    first, second = result["judge_evaluations"]
    assert result["reward"] == 0.5
    assert (first["verdict_label"], first["judgement_parsing_issues"]) == (None, ["no_verdict"])
    assert second["verdict_label"] == "[[A=B]]"
    result, _ = await scored("Hm.\nAnswer: x", "I cannot say.", NO, **PATTERN)
    assert result["_ng_failure_class"] == "judge_failed"


async def test_a_long_expected_answer_is_judged_once_on_the_whole_reply():
    config = {"extraction_length_threshold": 6, "check_twice_swap": True, "response_extract_regex": r"Answer: (.*)"}
    result, (seen,) = await scored("Hm, maybe.\nAnswer: x", YES, config=config, **PATTERN)
    assert result["reward"] == 1.0
    assert "maybe" in seen
    # As long as the limit is not longer than it.
    result, seen = await scored("Hm, maybe.\nAnswer: x", YES, NO, config=config, **PATTERN, expected_answer="Becaus")
    assert (result["reward"], len(seen)) == (0.0, 2)


@pytest.mark.parametrize(
    ("config", "row"),
    [
        ({"use_per_record_regex": False}, PATTERN),
        ({"extraction_length_threshold": 3}, PATTERN),
        ({}, {"template_metadata": {"output_regex": "nothing (.*)"}}),
        ({}, {"template_metadata": {"output_regex": "(["}}),
    ],
)
async def test_without_a_pattern_that_matches_all_is_judged(config, row):
    _, (seen,) = await scored("Hm, maybe.\nAnswer: x", YES, config=config, **row)
    assert "maybe" in seen


async def test_of_several_patterns_the_first_that_matches_counts():
    patterns = {"template_metadata": {"output_regex": ["a(b)", r"Answer: (\w+)", r"(\w+)"]}}
    _, (seen,) = await scored("Hm, maybe.\nAnswer: so it is", YES, **patterns)
    assert "\nso\n" in seen


async def test_the_config_may_find_question_and_answer():
    config = {"question_extract_regex": r"Please: (.*)", "response_extract_regex": r"<a>(.*?)</a>"}
    _, (seen,) = await scored("maybe <a>so\nit is</a>", YES, config=config, question=None)
    assert "Why?" in seen
    assert "Please" not in seen
    assert "so\nit is" in seen
    assert "maybe" not in seen


async def test_the_expected_answer_may_stand_in_the_metadata():
    result, (seen,) = await scored("x", YES, expected_answer=None, metadata={"expected_answer": "In there"})
    assert result["expected_answer"] == "In there"
    assert "In there" in seen


async def test_labels_system_message_and_parameters_are_the_configs():
    config = {
        "judge_equal_label": "YES",
        "judge_not_equal_label": "NO",
        "judge_system_message": "Be fair.",
        "judge_responses_create_params": {"input": [], "temperature": 0.0},
    }
    result, _ = await scored("x", "YES", config=config)
    assert result["reward"] == 1.0
    params = result["judge_evaluations"][0]["responses_create_params"]
    assert (params["input"][0]["content"], params["temperature"]) == ("Be fair.", 0.0)


@pytest.mark.parametrize(
    "verdicts",
    [
        [],
        [reply(reasoning("hm"))],
        ["I cannot say."],
        ["[[A = B]]"],
        [f"<think>{YES}"],
        [f"<think>{YES}</think>"],
        [reply(YES, status="incomplete")],
    ],
)
async def test_a_judge_that_fails_is_a_failure_and_not_a_wrong_answer(verdicts):
    result, _ = await scored("x", *verdicts)
    assert result["_ng_failure_class"] == "judge_failed"


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"expected_answer": None}, "expected_answer"),
        ({"expected_answer": ""}, "expected_answer"),
        ({"template_metadata": {"output_regex": 3}}, "template_metadata"),
    ],
)
async def test_a_row_that_cannot_be_judged_is_refused_by_name(row, named):
    async with running(equivalence=(LLMJudgeResourcesServer, JUDGE)) as client:
        refused = await client.post("equivalence", "/verify", json=body("x", **row))
        assert refused.status == 422
        assert (await get_response_json(refused))["detail"][0]["loc"][:2] == ["body", named]


@pytest.mark.parametrize("wrong", [{"response_extract_regex": "("}, {"judge_endpoint_max_concurrency": 0}])
def test_a_config_that_cannot_work_is_refused_by_name(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        build_server(LLMJudgeResourcesServer, **JUDGE, **wrong)


def test_a_template_must_be_there_and_have_its_places(tmp_path):
    with pytest.raises(ValueError, match="no file"):
        build_server(LLMJudgeResourcesServer, **JUDGE, judge_prompt_template_fpath="nowhere.txt")
    (tmp_path / "t.txt").write_text("{question} {expected_answer}")
    with pytest.raises(ValueError, match="generated_answer"):
        build_server(LLMJudgeResourcesServer, **JUDGE, judge_prompt_template_fpath=str(tmp_path / "t.txt"))


class SlowJudge(SimpleResponsesAPIModel):
    """Agrees, after a while, with what ends in `yes`, and counts how many ask at a time."""

    config: BaseResponsesAPIModelConfig
    now: int = 0
    most: int = 0

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        self.now -= 1
        return reply(YES if "said yes" in str(body.input[-1].content) else NO)

    async def chat_completions(self, body: Any = Body()) -> Any:
        raise AssertionError("not asked")


async def test_many_at_once_keep_their_answers_and_the_judge_its_limit():
    judge = build_server(SlowJudge)
    config = {**JUDGE, "judge_endpoint_max_concurrency": 4}
    async with running(equivalence=(LLMJudgeResourcesServer, config), judge=judge) as client:

        async def one(number: int) -> float:
            sent = body(f"{number} said {'yes' if number % 3 else 'no'}")
            return (await get_response_json(await client.post("equivalence", "/verify", json=sent)))["reward"]

        assert await asyncio.gather(*map(one, range(32))) == [float(bool(number % 3)) for number in range(32)]
    assert judge.most == 4


async def test_every_gold_answer_is_shown_to_the_judge():
    for row in generate_data.all_rows():
        (said,) = generate_data.solution(row)
        result, (seen,) = await scored(said, YES, **{key: row[key] for key in row if key != "responses_create_params"})
        assert result["reward"] == 1.0
        assert seen.count(row["expected_answer"]) == 2


@pytest.mark.parametrize(
    ("verdict", "issues"),
    [
        (YES, None),
        (f"{NO} No: {YES}", ["conflicting_verdicts"]),
        (f"{YES} {YES}", ["repeated_verdict"]),
        (f"{YES} {NO} {YES}", ["conflicting_verdicts", "repeated_verdict"]),
    ],
)
async def test_what_is_odd_about_a_verdict_is_told(verdict, issues):
    result, _ = await scored("It is so.", verdict)
    assert result["judge_evaluations"][0].get("judgement_parsing_issues") == issues


def test_the_share_of_odd_verdicts_is_a_metric_of_the_judged_rollouts():
    def rollout(*issues: str) -> dict[str, Any]:
        return {"judge_evaluations": [{"judgement_parsing_issues": list(issues)}]}

    server = build_server(LLMJudgeResourcesServer, **JUDGE)
    tasks = [[rollout(), rollout("repeated_verdict")], [{"judge_evaluations": []}, rollout(), rollout("no_verdict")]]
    metrics = server.compute_metrics(tasks)
    assert metrics == {
        "judgement_parsing_issue_rate": 0.5,
        "judgement_parsing_issue_rate/no_verdict": 0.25,
        "judgement_parsing_issue_rate/repeated_verdict": 0.25,
    }
    assert server.get_key_metrics(metrics)["judgement_parsing_issue_rate"] == 0.5
    assert server.compute_metrics([[{"judge_evaluations": []}]]) == {}


def test_braces_in_a_text_are_left_alone_and_doubled_ones_of_a_template_are_one():
    values = {"question": "{{expected_answer}}", "expected_answer": "{x}", "generated_answer": r"\frac{1}{2}"}
    assert fill_template("{question}|{expected_answer}|{generated_answer}|{other}|{{question}}", values) == (
        r"{{expected_answer}}|{x}|\frac{1}{2}|{other}|{question}"
    )


@given(st.text(), st.text())
@settings(max_examples=50, deadline=None)
def test_whatever_is_said_can_be_searched_and_shown(said, expected):
    assert extract([r"Answer: (.*)", r"(\w+)$"], said) in said
    values = {"question": expected, "expected_answer": expected, "generated_answer": said}
    assert fill_template("{generated_answer}", values) == said


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"Answer: (\w+)", "b"),
        (r"Answer: \w+", "Answer: b"),
        (r"Answer: (z?)", "Answer:"),
        (r"Answer: (z)?(\w)", "b"),
        (r"a\n(.*)$", "Answer: b\nend"),
    ],
)
def test_the_last_match_gives_its_first_group_that_holds_something(pattern, found):
    assert extract([pattern], "Answer: a\nAnswer: b\nend") == found


def test_a_megabyte_of_nonsense_is_searched_at_once():
    assert extract([r"Answer: (\w+)"], "Answer: " * 125_000) == "Answer"
