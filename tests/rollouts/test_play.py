# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import math
import random

import aiohttp
import pytest
from aiohttp import web
from pydantic import ConfigDict

from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._rollouts.play import Player, RetryRule, RetryRules, check_reward, find_requested_pause
from nemo_gym._transport.call_errors import ServerDeadlineExceeded, ServerUnreachable
from nemo_gym._transport.failures import HEADER, Failure
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import Body, SimpleResponsesAPIAgent
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import raise_for_status
from nemo_gym.testing import reply, running, scripted_model
from tests.support.clock import skip_time

ROW = {
    "responses_create_params": {"input": "hi"},
    "agent_ref": {"type": "responses_api_agents", "name": "agent"},
    "_ng_task_index": 3,
    "_ng_rollout_index": 1,
    "_ng_attempt_index": 2,
    "skills_ref": {"path": "s"},
}
KEYS = {key: value for key, value in ROW.items() if key != "responses_create_params"}


class Answer:
    """An agent's reply, as far as it is read."""

    def __init__(self, body=b"", status=200, **headers):
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}

    async def read(self):
        return self.body


def failing(kind, *, retryable=True, message="it broke", **headers):
    return Answer("broken", 500, **{HEADER: Failure(kind, "somewhere", retryable, message).encode()}, **headers)


class Script:
    """An agent that answers from a list, and repeats the last answer; errors are raised."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def __call__(self, agent, row):
        self.asked.append((agent, row))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Naps:
    """Sleeps no time and remembers how long."""

    def __init__(self):
        self.lengths_s = []

    async def __call__(self, length_s):
        self.lengths_s.append(length_s)


def player(post, *, timeout_s=None, **settings):
    settings = {"sleep": Naps(), "rng": random.Random(1), **settings}
    return Player(post, timeout_s=timeout_s, **settings)


async def played(*answers, **settings):
    script = Script(*answers)
    return await player(script, **settings).play(ROW), script


async def test_a_result_with_a_reward_is_scored_and_carries_the_keys_of_its_row():
    outcome, script = await played(Answer({"reward": 1.0, "note": "x", "_ng_task_index": 99}))
    assert isinstance(outcome, Scored)
    assert outcome.result == {"reward": 1.0, "note": "x", **KEYS}
    assert (outcome.attempts, outcome.row) == (1, ROW)
    assert script.asked == [("agent", ROW)]


CRASH = {"tool": "look", "status": 500, "message": "boom"}


@pytest.mark.parametrize("result", [{"_ng_tool_errors": [CRASH]}, {"response": {"_ng_tool_errors": [CRASH]}}])
async def test_a_crashed_tool_is_a_failure_only_where_that_is_asked_for(result):
    answer = Answer({"reward": 1.0, **result})
    lenient, _ = await played(answer)
    assert isinstance(lenient, Scored)
    assert lenient.result["_ng_tool_errors"] == [CRASH]
    strict, script = await played(answer, fail_on_tool_error=True)
    assert isinstance(strict, Failed)
    message = "the tool 'look' answered 500: boom"
    assert strict.failure == Failure("tool_crashed", "/look", False, message, ends_rollout=True)
    assert strict.result["_ng_tool_errors"] == [CRASH], "what was said until then is kept"
    assert len(script.asked) == 1


async def test_keys_that_only_some_rows_have_are_carried_too():
    more = {"skills_ref": "s", "_ng_attempt_index": 2, "_ng_rollout_id": "r-1"}
    outcome = await player(Script(Answer({"reward": 0.0}))).play({**ROW, **more})
    assert outcome.result == {"reward": 0.0, **KEYS, **more}


async def test_a_reward_that_does_not_pass_the_check_is_a_failure_that_keeps_the_result():
    outcome, script = await played(Answer({"note": "x"}))
    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.result) == ("verifier", {"note": "x", **KEYS})
    assert len(script.asked) == 1


@pytest.mark.parametrize("kind", ["model_endpoint", "model_reply_invalid", "tool_server"])
async def test_a_retryable_failure_is_played_three_times_in_all(kind):
    outcome, script = await played(failing(kind))
    assert (outcome.failure, outcome.attempts) == (Failure(kind, "somewhere", True, "it broke"), 3)
    assert len(script.asked) == 3


async def test_a_timeout_inside_is_played_only_twice():
    outcome, _ = await played(failing("timeout"))
    assert (outcome.failure.kind, outcome.attempts) == ("timeout", 2)


async def test_a_second_attempt_that_goes_well_is_scored_with_two_attempts():
    heard = []
    script = Script(failing("model_endpoint"), Answer({"reward": 1.0}))
    outcome = await player(script).play(ROW, heard.append)
    assert isinstance(outcome, Scored)
    assert (outcome.attempts, [failure.kind for failure in heard]) == (2, ["model_endpoint"])


@pytest.mark.parametrize("kind", ["verifier", "agent", "tool_server", "model_endpoint"])
async def test_what_is_not_retryable_is_never_played_again(kind):
    outcome, script = await played(failing(kind, retryable=False))
    assert (outcome.failure.kind, len(script.asked)) == (kind, 1)


async def test_pauses_grow_and_are_spread_out():
    naps = Naps()
    rules = RetryRules(by_kind={"model_endpoint": RetryRule(5, 2.0)})
    await played(failing("model_endpoint"), sleep=naps, retries=rules)
    assert [low <= nap <= 2 * low for nap, low in zip(naps.lengths_s, [1.0, 2.0, 4.0, 8.0], strict=True)] == [True] * 4
    assert len({nap % 1 for nap in naps.lengths_s}) == 4


@pytest.mark.parametrize(
    ("headers", "message", "pause_s"),
    [
        ({"Retry-After": "7"}, "answered 429", 7.0),
        ({"retry-after": "900"}, "", 60.0),
        ({}, 'answered 429: {"error": "Rate limit reached. Please try again in 1.5s."}', 1.5),
        ({}, "Please try again in 250ms", 0.25),
        ({}, "please try again in 2m", 60.0),
        ({}, '{"retry_after": 12}', 12.0),
        ({}, "Retry-After: 4 seconds", 4.0),
        ({}, "answered 500: boom after 3 s", None),
    ],
)
def test_the_pause_asked_for_is_read_from_the_header_or_from_the_words(headers, message, pause_s):
    assert find_requested_pause(headers, message) == pause_s


async def test_the_pause_asked_for_is_kept():
    naps = Naps()
    await played(failing("model_endpoint", retry_after="20"), Answer({"reward": 1.0}), sleep=naps)
    assert 20.0 <= naps.lengths_s[0] <= 21.0


async def test_a_pause_that_ends_after_the_deadline_is_not_begun():
    naps = Naps()
    outcome, script = await played(failing("model_endpoint", retry_after="20"), timeout_s=10.0, sleep=naps)
    assert (outcome.failure.kind, outcome.attempts, len(script.asked)) == ("model_endpoint", 1, 1)
    assert naps.lengths_s == []


async def test_the_deadline_ends_a_rollout_that_hangs():
    async def hang(agent, row):
        await asyncio.Event().wait()

    outcome = await player(hang, timeout_s=0.01).play(ROW)
    assert outcome.failure == Failure("timeout", "agent/run", True, "no result within 0.01 s, in attempt 1")
    assert outcome.elapsed_s >= 0.01


async def test_the_deadline_is_for_all_attempts_and_tells_what_failed_before():
    answers = iter([failing("model_endpoint", message="answered 500")])

    async def fail_then_hang(agent, row):
        answer = next(answers, None)
        if answer is not None:
            return answer
        skip_time(600)
        return await asyncio.Event().wait()

    rules = RetryRules(by_kind={"model_endpoint": RetryRule(3, 0.001)})
    outcome = await player(fail_then_hang, timeout_s=600, retries=rules).play(ROW)
    assert (outcome.failure.kind, outcome.attempts) == ("timeout", 2)
    assert "model_endpoint: answered 500" in outcome.failure.message


async def test_cancelling_a_rollout_cancels_its_call():
    async def hang(agent, row):
        await asyncio.Event().wait()

    task = asyncio.create_task(player(hang, timeout_s=100.0).play(ROW))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'"done"', b"null", b'{"reward": 1'])
async def test_a_reply_that_is_no_json_object_is_the_agents_failure(body):
    outcome, script = await played(Answer(body))
    assert (outcome.failure.kind, outcome.failure.retryable, len(script.asked)) == ("agent", False, 1)
    assert repr(body.decode())[:10] in outcome.failure.message


async def test_a_row_that_does_not_fit_says_which_field_and_is_not_tried_again():
    detail = [{"loc": ["body", "verifier_metadata"], "msg": "Field required"}]
    outcome, script = await played(Answer({"detail": detail}, 422))
    assert (outcome.failure.kind, outcome.failure.retryable, len(script.asked)) == ("agent", False, 1)
    assert "agent/run answered 422: body.verifier_metadata: Field required\nhint: " in outcome.failure.message


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (404, 1), (500, 1), (429, 3), (502, 3), (503, 3)])
async def test_an_agent_of_somebody_else_is_judged_by_its_status(status, attempts):
    outcome, _ = await played(Answer(b"words", status))
    assert (outcome.failure.kind, outcome.attempts) == ("agent", attempts)
    assert f"answered {status}: words" in outcome.failure.message


@pytest.mark.parametrize(
    ("error", "kind", "attempts"),
    [
        (ServerUnreachable("POST", "http://h:1/run", "refused"), "agent", 3),
        (ServerDeadlineExceeded("POST", "http://h:1/run", 3600), "timeout", 2),
        (aiohttp.ClientPayloadError("cut off"), "agent", 3),
        (KeyError("agent"), "agent", 1),
    ],
)
async def test_a_call_that_raises_is_a_failure(error, kind, attempts):
    outcome, _ = await played(error)
    assert (outcome.failure.kind, outcome.attempts) == (kind, attempts)


@pytest.mark.parametrize(
    ("said", "kind", "terminal", "persist"),
    [
        ({"_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "down"}, "verifier", False, True),
        ({"_ng_failure_class": "remote_agent_error", "_ng_failure_message": "down"}, "agent", False, True),
        ({"_ng_failure_class": "tool_crashed", "_ng_failure_message": "down"}, "tool_crashed", False, True),
        ({"_ng_failure_class": "bad_task", "_ng_failure_terminal": True}, "agent", True, True),
        ({"_ng_no_persist": True}, "agent", False, False),
        ({"_ng_failure_class": "flaky", "_ng_no_persist": True}, "agent", False, False),
    ],
)
async def test_a_result_that_says_it_failed_is_never_scored_and_is_kept(said, kind, terminal, persist):
    outcome, script = await played(Answer({"reward": 0.0, **said}))
    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.terminal, outcome.persist) == (kind, terminal, persist)
    assert outcome.failure.retryable is not terminal
    assert outcome.result == {"reward": 0.0, **said, **KEYS}
    assert len(script.asked) == 1
    if "_ng_failure_message" in said:
        assert outcome.failure.message == f"{said['_ng_failure_class']}: down"


async def test_routing_keys_that_are_empty_route_nothing():
    said = {"_ng_failure_class": None, "_ng_no_persist": False, "_ng_failure_terminal": False}
    outcome, _ = await played(Answer({"reward": 1.0, **said}))
    assert isinstance(outcome, Scored)


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ({"failure_kind": "session_lost", "failure_reason": "gone"}, "session_lost", "session_lost: gone"),
        ({"failure_kind": "provider_oom_killed"}, "verifier", "provider_oom_killed: "),
        ({}, "verifier", "mask_sample: "),
    ],
)
async def test_a_reward_that_its_verifier_masks_is_a_failure_and_no_score(said, kind, message):
    outcome, _ = await played(Answer({"reward": 0.0, "mask_sample": True, **said}))
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind == kind
    assert outcome.failure.message.startswith(message)
    assert outcome.result["mask_sample"] is True


@pytest.mark.parametrize(
    "said",
    [
        {"mask_sample": False},
        {"mask_sample": False, "failure_kind": "agent_timeout"},
        {"mask_sample": True, "_ng_token_capture": {"records": []}},
    ],
)
async def test_a_reward_that_was_measured_counts_whatever_else_went_wrong(said):
    outcome, _ = await played(Answer({"reward": 1.0, **said}))
    assert isinstance(outcome, Scored)


class Run(BaseRunRequest):
    model_config = ConfigDict(extra="allow")
    wish: str


class Agent(SimpleResponsesAPIAgent):
    """Asks the model once, and has a bug for those who wish for it."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        return reply("unused")

    async def run(self, body: Run = Body()) -> BaseVerifyResponse:
        if body.wish == "bug":
            raise ZeroDivisionError("a bug")
        answer = await self.server_client.post("policy_model", "/v1/responses", json=body.responses_create_params)
        await raise_for_status(answer)
        return BaseVerifyResponse(
            responses_create_params=body.responses_create_params, response=reply("done"), reward=1.0
        )


@pytest.mark.parametrize(
    ("row", "replies", "kind", "attempts"),
    [
        ({"wish": "none"}, ["hello"], None, 1),
        ({"wish": "bug"}, ["hello"], "agent", 1),
        ({}, ["hello"], "agent", 1),
        ({"wish": "none"}, [], "model_endpoint", 1),
    ],
    ids=["scored", "a bug in the agent", "a field is missing", "the model server fails"],
)
async def test_a_real_agent_ends_as_expected(row, replies, kind, attempts):
    async with running(agent=Agent, policy_model=scripted_model(*replies)) as client:

        async def post(agent, whole_row):
            return await client.post(agent, "/run", json=whole_row)

        outcome = await player(post, timeout_s=30.0).play({**ROW, **row})
    assert (outcome.failure.kind if isinstance(outcome, Failed) else None) == kind
    assert outcome.attempts == attempts


async def test_over_http_a_reply_that_breaks_off_is_tried_again():
    calls = []

    async def run(request):
        calls.append(await request.json())
        if len(calls) > 1:
            return web.json_response({"reward": 1.0})
        answer = web.StreamResponse(headers={"content-length": "1000"})
        await answer.prepare(request)
        await answer.write(b'{"rew')
        request.transport.abort()
        return answer

    app = web.Application()
    app.router.add_post("/run", run)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:

        async def post(agent, row):
            return await session.post(f"http://127.0.0.1:{port}/run", json=row)

        outcome = await player(post, timeout_s=30.0).play(ROW)
    await runner.cleanup()
    assert isinstance(outcome, Scored)
    assert (outcome.attempts, calls) == (2, [ROW, ROW])


@pytest.mark.parametrize("reward", [0, 1, -2.5, True, False, 10**400])
def test_a_finite_number_is_a_reward(reward):
    assert check_reward({"reward": reward}) is None


@pytest.mark.parametrize("result", [{}, *({"reward": r} for r in (None, math.nan, math.inf, -math.inf, "1", [1], {}))])
def test_a_reward_that_is_not_a_finite_number_is_the_verifiers_failure(result):
    failure = check_reward(result)
    assert failure.kind == "verifier"
    assert "reward" in failure.message
