# SPDX-License-Identifier: Apache-2.0
"""Answers are compared by math-verify in worker processes, and by a judge where the config says so."""

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings, strategies as st

from nemo_gym.server_utils import ServerClient, get_response_json
from nemo_gym.testing import ScriptedModel, asked, build_server, reasoning, reply, running, scripted_model, tool_call
from resources_servers.math_with_judge import comparisons, generate_data, library
from resources_servers.math_with_judge.app import LibraryJudgeMathResourcesServer
from resources_servers.math_with_judge.comparisons import Comparisons
from resources_servers.math_with_judge.judging import EQUAL_LABEL, NOT_EQUAL_LABEL
from resources_servers.math_with_judge.library import box_gold, verdict_on
from resources_servers.math_with_judge.tests import deadly_library

ALONE = {"should_use_judge": False}
JUDGED = {
    "judge_model_server": {"type": "responses_api_models", "name": "judge"},
    "judge_responses_create_params": {"input": [], "temperature": 0.0, "max_output_tokens": 64},
}
# The tests that share a server share its event loop.
SHARED = pytest.mark.asyncio(loop_scope="module")
# Far more digits than can be computed in the time that a test has.
ENDLESS = r"\boxed{3^{3^{3^{3^{3}}}} + \frac{1}{7}}"


def body(said: Any, expected: str, question: str = "How many?") -> dict[str, Any]:
    response = reply(said) if isinstance(said, str) else said
    params = asked(question)
    return {"responses_create_params": params, "response": response, "question": question, "expected_answer": expected}


class Table:
    """A server and its judge, for all tests of this module: to warm a library up takes longer than most of them."""

    def __init__(self, client: ServerClient, server: LibraryJudgeMathResourcesServer, judge: ScriptedModel) -> None:
        self.client, self.server, self.judge = client, server, judge

    async def scored(self, said: Any, expected: str, judge: Sequence[Any] | None = None) -> dict[str, Any]:
        """The verify response; `judge` is what the judge says, None for a server that has none."""
        self.server.config.should_use_judge = judge is not None
        self.judge.requests.clear()
        self.judge._replies[:] = [reply(one) if isinstance(one, str) else one for one in judge or ()]
        answer = await self.client.post("math", "/verify", json=body(said, expected))
        assert answer.status == 200, await answer.text()
        return await get_response_json(answer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def table():
    server, judge = build_server(LibraryJudgeMathResourcesServer, **JUDGED), scripted_model()
    async with running(math=server, judge=judge) as client:
        yield Table(client, server, judge)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (r"It is \boxed{4}.", "4"),
        (r"\boxed{0.5}", r"\frac{1}{2}"),
        (r"$\boxed{\frac{2}{4}}$", r"$\frac12$"),
        (r"\boxed{2\sqrt{2}}", r"\(\sqrt{8}\)"),
        (r"\boxed{\{2, 1\}}", r"\{1, 2\}"),
        (r"\boxed{(x-1)(x+1)}", "x^2 - 1"),
        (reply("First: 3.", r"Now \boxed{4}"), "4"),
        (reply(r"\boxed{3", "2}"), "32"),
        (r"\boxed{0.5}", r"50\%"),
        (r"\boxed{50\%}", "50%"),
        (r"<think>Is it 5?</think>\boxed{4}", "4"),
        (r"\boxed{\boxed{4}}", "4"),
    ],
)
@SHARED
async def test_an_equal_answer_is_worth_one_however_it_is_written(table, said, expected):
    result = await table.scored(said, expected)
    assert (result["reward"], result["library_reward"], result["judge_evaluations"]) == (1.0, 1.0, None)
    assert result["extracted_answer"]
    assert result["expected_answer"] == expected


@pytest.mark.parametrize("said", [r"\boxed{5}", "I do not know.", r"\boxed{\text{none}}", r"\boxed{", r"\frac{"])
@SHARED
async def test_any_other_answer_is_worth_nothing(table, said):
    result = await table.scored(said, "4")
    assert (result["reward"], result["library_reward"], result["judge_evaluations"]) == (0.0, 0.0, None)


@pytest.mark.parametrize(
    "response",
    [
        reply(),
        reply(""),
        reply(reasoning(r"\boxed{4}")),
        reply(tool_call("x", "{no")),
        reply("The final answer is $4$."),
        reply("**4**"),
        reply(r"\fbox{4}"),
        reply(r"\boxed{4} or rather \boxed{}"),
        reply(r"\boxed{4} or rather \boxed{ }"),
        reply(r"\boxed{4} or rather \boxed{4"),
        reply(r"<think>\boxed{4}</think>"),
        reply(r"<think>\boxed{4}"),
        reply(r"<think>\boxed{4}</think> It is 4."),
    ],
)
@pytest.mark.parametrize("judge", [None, []])
@SHARED
async def test_no_answer_in_a_box_is_worth_nothing_and_the_judge_is_not_asked(table, response, judge):
    result = await table.scored(response, "4", judge)
    assert (result["reward"], result["extracted_answer"], result["judge_evaluations"]) == (0.0, None, None)


@pytest.mark.parametrize(
    "said", [r"<think>\boxed{4}</think>\boxed{5}", r"<think>\boxed{5}</think>\boxed{4}", r"\boxed{5} or \boxed{4}"]
)
@SHARED
async def test_an_answer_with_another_one_beside_it_is_worth_nothing(table, said):
    assert (await table.scored(said, "4"))["reward"] == 0.0


@SHARED
async def test_a_judge_sees_only_the_box(table):
    said = r"<think>\boxed{\text{no}}</think>I argue that it is \boxed{\text{the empty set}}."
    await table.scored(said, "no solution", [NOT_EQUAL_LABEL])
    seen = table.judge.requests[0].input[-1].content
    assert r"\text{the empty set}" in seen
    assert "argue" not in seen


@SHARED
async def test_what_was_found_is_told_also_if_it_is_wrong(table):
    assert (await table.scored(r"\boxed{\frac{10}{4}}", "3"))["extracted_answer"] == "5/2"


@pytest.mark.parametrize(
    ("expected", "boxed"),
    [
        ("4", r"\boxed{4}"),
        (" $4$ ", r"\boxed{4}"),
        ("$$4$$", r"\boxed{4}"),
        (r"\( x+1 \)", r"\boxed{x+1}"),
        (r"\[4\]", r"\boxed{4}"),
        ("$1$ or $2$", r"\boxed{$1$ or $2$}"),
        ("$", r"\boxed{$}"),
    ],
)
def test_the_marks_around_an_expected_answer_do_not_count(expected, boxed):
    assert box_gold(expected) == boxed


@SHARED
async def test_a_judge_must_find_the_answers_equal_in_both_orders(table):
    replies = [f"Same. {EQUAL_LABEL}", f"Same. {EQUAL_LABEL}"]
    result = await table.scored(r"\boxed{\text{the empty set}}", "no solution", replies)
    assert (result["reward"], result["library_reward"]) == (1.0, 0.0)
    assert [set(one) for one in result["judge_evaluations"]] == [{"responses_create_params", "response"}] * 2
    first, second = (request.input[-1].content for request in table.judge.requests)
    assert first.index("no solution") < first.index("the empty set")
    assert second.index("the empty set") < second.index("no solution")
    assert all(request.temperature == 0.0 and request.max_output_tokens == 64 for request in table.judge.requests)


@pytest.mark.parametrize(
    ("replies", "asked_times"),
    [([NOT_EQUAL_LABEL], 1), ([EQUAL_LABEL, NOT_EQUAL_LABEL], 2)],
)
@SHARED
async def test_a_judge_that_does_not_agree_gives_nothing(table, replies, asked_times):
    result = await table.scored(r"\boxed{\text{a square}}", "a rhombus", replies)
    assert (result["reward"], len(result["judge_evaluations"])) == (0.0, asked_times)


@SHARED
async def test_a_judge_is_not_asked_about_what_the_library_finds_equal(table):
    result = await table.scored(r"\boxed{4}", "4", [])
    assert (result["reward"], result["judge_evaluations"]) == (1.0, None)


@pytest.mark.parametrize(
    "replies",
    [
        [],
        [reply(reasoning("hm"))],
        ["I cannot say."],
        ["[[A = B]]"],
        [f"<think>{EQUAL_LABEL}"],
        [f"<think>{EQUAL_LABEL}</think>"],
        [reply(EQUAL_LABEL, status="incomplete")],
        [EQUAL_LABEL, "I cannot say."],
    ],
)
@SHARED
async def test_a_judge_that_fails_is_a_failure_and_not_a_wrong_answer(table, replies):
    result = await table.scored(r"\boxed{5}", "4", replies)
    assert result["_ng_failure_class"] == "judge_failed"
    assert "judge" in result["_ng_failure_judge_error"]


def test_the_policy_judges_itself_unless_another_judge_is_named():
    assert build_server(LibraryJudgeMathResourcesServer).config.judge_model_server.name == "policy_model"


@pytest.mark.parametrize("row", [{"expected_answer": 4}, {"question": None}])
@SHARED
async def test_a_row_without_its_texts_is_refused_by_name(table, row):
    refused = await table.client.post("math", "/verify", json={**body("x", "4"), **row})
    assert refused.status == 422
    assert (await get_response_json(refused))["detail"][0]["loc"] == ["body", *row]


@SHARED
async def test_a_library_that_takes_too_long_is_stopped_and_the_judge_asked(table, caplog, monkeypatch):
    caplog.set_level(logging.WARNING)
    hasty = build_server(LibraryJudgeMathResourcesServer, **JUDGED, library_verifier_timeout_seconds=0.5)
    assert hasty._comparisons.pool._timeout_s == 0.5
    monkeypatch.setattr(table.server._comparisons.pool, "_timeout_s", 0.5)
    result = await table.scored(ENDLESS, "4", [EQUAL_LABEL, EQUAL_LABEL])
    assert (result["reward"], result["library_reward"], result["extracted_answer"]) == (1.0, 0.0, None)
    assert "was killed" in caplog.text


async def test_answers_on_which_the_library_hangs_do_not_hold_the_others_up(monkeypatch):
    monkeypatch.setattr(comparisons, "_SLOW_S", 0.2)
    config = {**ALONE, "library_verifier_timeout_seconds": 60}
    async with running(math=(LibraryJudgeMathResourcesServer, config)) as client:

        async def one(said: str) -> float:
            answer = await client.post("math", "/verify", json=body(said, "4"))
            return (await get_response_json(answer))["reward"]

        hanging = [asyncio.create_task(one(ENDLESS)) for _ in range(3)]
        assert await asyncio.gather(*(one(r"\boxed{4}") for _ in range(8))) == [1.0] * 8
        assert not any(task.done() for task in hanging)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


@SHARED
async def test_many_at_once_keep_their_answers(table):
    async def one(number: int) -> tuple[float, str]:
        result = await table.scored(rf"\boxed{{{number}}}", str(number if number % 2 else -number))
        return result["reward"], result["extracted_answer"]

    assert await asyncio.gather(*map(one, range(1, 65))) == [(float(n % 2), str(n)) for n in range(1, 65)]


@pytest.fixture
def deadly(monkeypatch):
    """A library that takes its process down on the answer `die`."""
    monkeypatch.setattr(comparisons, "verdict_on", deadly_library.verdict_on)
    monkeypatch.setattr(comparisons, "verdicts_on", deadly_library.verdicts_on)


@SHARED
async def test_an_answer_that_takes_its_process_down_takes_no_other_with_it(table, deadly, caplog):
    async def one(said: str) -> float:
        return (await table.scored(said, "4"))["reward"]

    said = [r"\boxed{4}", r"\boxed{die}", r"\boxed{4}"] * 4
    assert await asyncio.gather(*map(one, said)) == [0.0 if "die" in text else 1.0 for text in said]
    assert "ended without an answer" in caplog.text


async def test_a_library_that_cannot_run_at_all_is_an_error_and_not_a_wrong_answer(monkeypatch):
    monkeypatch.setattr(comparisons, "_PRELOADED", ("no_such_module",))
    async with running(math=(LibraryJudgeMathResourcesServer, ALONE)) as client:
        answer = await client.post("math", "/verify", json=body(r"\boxed{4}", "4"))
        assert answer.status == 500
        assert "WorkerDied" in await answer.text()


@SHARED
async def test_whoever_no_longer_waits_is_passed_over(table):
    queue = table.server._comparisons
    asking = [asyncio.create_task(queue.verdict("4", rf"\boxed{{{number}}}")) for number in range(30)]
    await asyncio.sleep(0)
    asking[29].cancel()
    verdicts = await asyncio.gather(*asking, return_exceptions=True)
    assert [getattr(verdict, "is_equal", None) for verdict in verdicts] == [n == 4 for n in range(29)] + [None]


def test_the_verdicts_are_those_of_math_verify_itself():
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    answers = [
        r"\frac{6}{8}",
        "0.75",
        "75\\%",
        "x=3",
        "(0, 1)",
        r"\{1,2\}",
        "x^2+2x+1",
        "(x+1)^2",
        "1{,}000",
        "1000",
        "A",
    ]
    said = {answer: rf"Hence $y = 2$, so it is \boxed{{{answer}}}." for answer in answers}
    golds = {answer: parse(rf"\boxed{{{answer}}}", (LatexExtractionConfig(),)) for answer in answers}
    found = {answer: parse(said[answer], (ExprExtractionConfig(), LatexExtractionConfig())) for answer in answers}
    for gold, answer in itertools.product(answers, answers):
        bare = verify(golds[gold], found[answer])
        assert verdict_on(gold, said[answer]).is_equal == bare, (gold, answer)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        (r"1.6 \times 10^{-19}", r"9.1 \times 10^{-31}"),
        ("10^{-30}", r"2 \cdot 10^{-30}"),
        ("0", "0.0000001"),
        (r"\{10^{-30}\}", r"\{2 \cdot 10^{-30}\}"),
        ("(0, 10^{-20})", r"(0, 2 \cdot 10^{-20})"),
        (r"\begin{pmatrix}10^{-20}\\1\end{pmatrix}", r"\begin{pmatrix}2 \cdot 10^{-20}\\1\end{pmatrix}"),
        (r"10^{-30} x", r"2 \cdot 10^{-30} x"),
    ],
)
def test_small_numbers_are_equal_only_if_their_leading_digits_are(expected, answer):
    assert not verdict_on(expected, rf"\boxed{{{answer}}}").is_equal
    assert verdict_on(expected, rf"\boxed{{{expected}}}").is_equal


def test_a_bug_of_the_library_is_an_error_unless_the_text_is_the_same(monkeypatch):
    def read_badly(*args: Any, **options: Any) -> Any:
        raise AttributeError("'AtomContext' object has no attribute 'FUNC_GAMMA'")

    library._library.cache_clear()
    monkeypatch.setattr("math_verify.parser.latex2sympy", read_badly)
    monkeypatch.setattr(library, "_share_sympy_names", lambda: None)
    try:
        with pytest.raises(library.LibraryCrashed, match=r"cannot read the expected answer '73\.25%': AttributeError"):
            verdict_on("73.25%", r"\boxed{0.7325}")
        assert verdict_on("73.26%", r"\boxed{73.26%}").is_equal
    finally:
        library._library.cache_clear()


def test_an_answer_too_large_to_be_written_is_still_compared():
    verdict = verdict_on("10^{5000}", r"\boxed{10^{5000}}")
    assert verdict.is_equal


def test_every_gold_answer_passes():
    for row in generate_data.all_rows()[::4]:  # seven kinds take turns, so some of each
        (said,) = generate_data.solution(row)
        assert library.verdict_on(row["expected_answer"], said).is_equal, row


def test_training_and_validation_share_no_question():
    train, validation = generate_data.train_rows(), generate_data.validation_rows()
    assert train
    assert validation
    assert not {row["question"] for row in train} & {row["question"] for row in validation}


@pytest.fixture(scope="module")
def hasty():
    """Comparisons that may take a second, and what runs them."""
    queue = Comparisons(max_processes=4, timeout_s=1)
    with asyncio.Runner() as runner:
        yield runner, queue
        runner.run(queue.pool.aclose())


ODD = st.text(max_size=200) | st.from_regex(
    r"(\\boxed\{|\$|\}|[0-9x^+=/]|\\frac|\\sqrt\{|\\|,|\s){0,60}", fullmatch=True
)


@given(said=ODD, expected=ODD)
@settings(max_examples=50, deadline=None)
def test_whatever_is_said_has_a_verdict_or_runs_out_of_time(hasty, said, expected):
    runner, queue = hasty
    (outcome,) = runner.run(_outcomes(queue, [(expected, said)]))
    assert isinstance(outcome, TimeoutError) or outcome.is_equal in (True, False)


@pytest.mark.parametrize("said", [r"\boxed{" * 140_000 + "9" * 1_000_000, r"\boxed{4} " * 100_000])
def test_a_megabyte_of_nonsense_has_a_verdict_or_runs_out_of_time(hasty, said):
    runner, queue = hasty
    outcome, other = runner.run(_outcomes(queue, [("5", said), ("4", r"\boxed{4}")]))
    assert isinstance(outcome, TimeoutError) or not outcome.is_equal
    assert isinstance(other, TimeoutError) or other.is_equal


async def _outcomes(queue: Comparisons, pairs: list[tuple[str, str]]) -> list[Any]:
    return await asyncio.gather(*(queue.verdict(*pair) for pair in pairs), return_exceptions=True)
