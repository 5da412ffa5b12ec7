# SPDX-License-Identifier: Apache-2.0
"""Judge calls, and handlers that survive a judge's failure. Where it matters, the judge is a real server."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import pickle
from unittest.mock import AsyncMock, MagicMock

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fastapi import FastAPI, Request, Response
from fastapi.testclient import TestClient
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.errors import JudgeError as ErrorOfTheTree
from nemo_gym.judge import (
    JudgeError,
    ask_for_verdict,
    ask_judge,
    call_judge,
    judge_failsafe,
    reraise_judge_errors,
    verdict_label,
)
from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import asked, reasoning, reply, running, scripted_model


class Verdict(BaseModel):
    label: str


class VerifyRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    answer: str
    log_prob: float = 0.0


class VerifyResponse(VerifyRequest):
    reward: float


def client_that_gets(response=None, error=None):
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(return_value=response, side_effect=error)
    return client


async def ask(client):
    return await call_judge(
        client, server_name="judge", url_path="/v1/responses", json={"input": "?"}, response_model=Verdict
    )


@pytest.fixture
async def judge_reply():
    """Asks a real server that answers with the given body and status."""

    async def reply_with(body, status=200):
        async def handler(request):
            return web.Response(body=body, status=status, content_type="application/json")

        app = web.Application()
        app.router.add_post("/v1/responses", handler)
        async with TestServer(app) as server, aiohttp.ClientSession() as session:
            client = MagicMock(spec=ServerClient)
            client.post = lambda server_name, url_path, json: session.post(server.make_url(url_path), json=json)
            return await ask(client)

    return reply_with


async def test_a_judge_is_asked_with_the_parameters_of_the_environment():
    params, judge = asked("is replaced", temperature=0.5), scripted_model("Same. [[A=B]]")
    messages = [{"role": "user", "content": "Same?"}]
    async with running(judge=judge) as client:
        said = await ask_judge(client, server_name="judge", messages=messages, responses_create_params=params)
    assert (judge.requests[0].temperature, judge.requests[0].input[0].content) == (0.5, "Same?")
    assert said.responses_create_params.input[0].content == "Same?"
    assert verdict_label(said.response, ("[[A=B]]", "[[A!=B]]")) == "[[A=B]]"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (reply(reasoning("well")), r"said nothing\nhint: is max_output_tokens"),
        (reply("<think>YES</think>"), "said nothing"),
        (reply("<think>It is YES, I think"), "said nothing"),
        (reply("YES", status="incomplete"), r"was cut off\nhint: is max_output_tokens"),
        (reply(), "gave no answer: its output is empty"),
        (reply("YES", status="failed"), "gave no answer: its status is 'failed'"),
        (reply("I cannot decide."), r"none of 'YES', 'NO'\nit ends: 'I cannot decide.'"),
        (reply("MAYBE"), "gave no verdict"),
        (reply("yes"), "gave no verdict"),
        (reply("I'm sorry, but I can't help with that."), "gave no verdict"),
    ],
)
async def test_a_judge_without_a_verdict_is_an_error_that_holds_its_reply(said, why):
    with pytest.raises(JudgeError, match=f"judge 'judge' .*{why}") as raised:
        await ask_yes_or_no(said)
    assert raised.value.evaluation.response.output == said.output
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


async def test_a_verdict_comes_with_the_call_that_gave_it():
    label, evaluation = await ask_yes_or_no(reply("Hm. NO"))
    assert (label, evaluation.response.output_text) == ("NO", "Hm. NO")


async def ask_yes_or_no(said):
    answers = web.json_response(said.model_dump(mode="json"))

    async def handler(request):
        return answers

    app = web.Application()
    app.router.add_post("/v1/responses", handler)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = MagicMock(spec=ServerClient)
        client.post = lambda server_name, url_path, json: session.post(
            server.make_url(url_path), json=json.model_dump(exclude_unset=True)
        )
        return await ask_for_verdict(
            client, server_name="judge", messages=[], responses_create_params=asked("?"), labels=("YES", "NO")
        )


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (reply().model_dump(mode="json"), NeMoGymResponse),
        (reply("[[A=", status="incomplete").model_dump(mode="json"), NeMoGymResponse),
        (reply("x", status="failed").model_dump(mode="json"), NeMoGymResponse),
        ({"id": "c", "created": 0, "model": "m", "object": "chat.completion", "choices": []}, NeMoGymChatCompletion),
    ],
)
async def test_a_valid_reply_without_an_answer_is_returned_by_a_plain_call(body, model):
    client = client_that_gets(MagicMock(ok=True, read=AsyncMock(return_value=json.dumps(body).encode())))
    answer = await call_judge(client, server_name="judge", url_path="/v1/x", json={}, response_model=model)
    assert isinstance(answer, model)


@pytest.mark.parametrize(
    ("said", "label"),
    [("NO at first sight, but then: YES", "YES"), ("<think>YES</think>NO", "NO"), ("perhaps", None), ("", None)],
)
def test_the_last_label_is_the_verdict(said, label):
    assert verdict_label(reply(said), ("YES", "NO")) == label


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("INCORRECT", "INCORRECT"),
        ("CORRECT? No: INCORRECT.", "INCORRECT"),
        ("**INCORRECT** at first, yet __CORRECT__", "CORRECT"),
        ("[[CORRECT]]", "CORRECT"),
        ("it is NOT CORRECT", "NOT CORRECT"),
        ("it is NOT\n**CORRECT**", "NOT CORRECT"),
        ("UNCORRECTED", None),
        ("NON-CORRECT", None),
        ("CORRECT-ish", None),
        ("correct", None),
    ],
)
def test_a_label_counts_as_a_whole(said, label):
    assert verdict_label(reply(said), ("CORRECT", "INCORRECT", "NOT CORRECT")) == label


# Labels of few characters contain one another all the time.
LABELS = st.lists(st.text("AB[]=! ", min_size=1, max_size=6).map(str.strip).filter(bool), min_size=1, max_size=6)


@given(LABELS.map(set), st.data())
def test_the_last_label_is_the_verdict_also_if_labels_contain_one_another(labels, data):
    said = data.draw(st.lists(st.sampled_from(sorted(labels)), min_size=1, max_size=4))
    verdict = verdict_label(reply(" then ".join(said)), labels)
    assert verdict is not None
    assert verdict.split() == said[-1].split()


@given(
    st.sampled_from(["CORRECT", "NOT EQUIVALENT", "B", "YES"]), st.text("aZ9é", min_size=1), st.sampled_from(["", "-"])
)
def test_a_label_in_a_bigger_word_is_no_verdict(label, more, hyphen):
    assert verdict_label(reply(f"{more}{hyphen}{label}"), [label]) is None
    assert verdict_label(reply(f"{label}{hyphen}{more}"), [label]) is None


async def test_a_valid_reply_becomes_the_model(judge_reply):
    assert await judge_reply(b'{"label": "[[A=B]]"}') == Verdict(label="[[A=B]]")


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b'"overloaded"', 500, "500"),
        (b'{"verdict": "yes"}', 200, "label"),
        (b"not json", 200, "not json"),
        (b"", 200, "judge"),
    ],
)
async def test_any_other_reply_is_a_judge_error_with_its_cause(judge_reply, body, status, why):
    with pytest.raises(JudgeError, match=r"judge 'judge' gave no usable reply at /v1/responses") as raised:
        await judge_reply(body, status)
    assert why in str(raised.value)
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize("error", [aiohttp.ClientConnectionError("refused"), TimeoutError(), RuntimeError("boom")])
async def test_no_reply_is_a_judge_error(error):
    with pytest.raises(JudgeError) as raised:
        await ask(client_that_gets(error=error))
    assert raised.value.__cause__ is error


async def test_cancellation_is_not_a_judge_error():
    with pytest.raises(asyncio.CancelledError):
        await ask(client_that_gets(error=asyncio.CancelledError()))


async def test_a_judge_error_from_below_passes_unchanged():
    error = JudgeError("inner")
    with pytest.raises(JudgeError) as raised:
        await ask(client_that_gets(error=error))
    assert raised.value is error


def test_the_error_is_the_one_of_the_error_tree():
    assert JudgeError is ErrorOfTheTree


async def test_the_call_reaches_the_server_as_given():
    response = AsyncMock(ok=True)
    response.read = AsyncMock(return_value=b'{"label": "x"}')
    client = client_that_gets(response)
    await ask(client)
    client.post.assert_awaited_once_with(server_name="judge", url_path="/v1/responses", json={"input": "?"})


@pytest.mark.parametrize("kind", [MagicMock, AsyncMock])
@pytest.mark.parametrize("body", [b'{"label": "x"}', '{"label": "x"}'])
async def test_a_stand_in_that_can_only_be_read_will_do(kind, body):
    response = kind()
    response.read = AsyncMock(return_value=body)
    assert await ask(client_that_gets(response)) == Verdict(label="x")


@pytest.mark.parametrize("kind", [MagicMock, AsyncMock])
async def test_a_stand_in_that_only_has_json_will_do(kind):
    response = kind()
    response.json = AsyncMock(return_value={"label": "x"})
    assert await ask(client_that_gets(response)) == Verdict(label="x")


async def test_a_stand_in_with_an_error_status_fails():
    response = AsyncMock(ok=False, status=503, reason="busy")
    response.raise_for_status = MagicMock(side_effect=aiohttp.ClientResponseError(MagicMock(), (), status=503))
    response.read = AsyncMock(return_value=b"busy")
    with pytest.raises(JudgeError, match="503"):
        await ask(client_that_gets(response))


async def test_results_pass_and_errors_of_a_judge_call_become_judge_errors():
    async def value():
        return 7

    async def broken():
        raise ValueError("no label in the reply")

    assert await reraise_judge_errors(value()) == 7
    with pytest.raises(JudgeError, match="ValueError: no label in the reply"):
        await reraise_judge_errors(broken())


async def test_a_judge_error_inside_a_judge_call_is_not_wrapped_again():
    error = JudgeError("inner")
    with pytest.raises(JudgeError) as raised:
        await reraise_judge_errors(AsyncMock(side_effect=error)())
    assert raised.value is error


class Server(BaseModel):
    """Like a real server: a model with bound handlers."""

    async def verify(self, body: VerifyRequest) -> VerifyResponse:
        return score(body)

    async def verify_with_all(self, request: Request, response: Response, body: VerifyRequest) -> VerifyResponse:
        response.set_cookie("seen", request.url.path.strip("/"))
        return score(body)

    def verify_sync(self, body: VerifyRequest) -> VerifyResponse:
        return score(body)


def score(body):
    if body.answer == "unjudged":
        raise JudgeError("the judge is down")
    if body.answer == "bug":
        raise KeyError("bug")
    return VerifyResponse(**body.model_dump(), reward=1.0)


@pytest.fixture
def client():
    server, app = Server(), FastAPI()
    app.post("/verify")(judge_failsafe(server.verify))
    app.post("/verify_with_all")(judge_failsafe(server.verify_with_all))
    app.post("/verify_sync")(judge_failsafe(server.verify_sync))
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize("path", ["/verify", "/verify_with_all", "/verify_sync"])
def test_a_guarded_handler_answers_as_before(client, path):
    reply = client.post(path, json={"answer": "4"})
    assert (reply.status_code, reply.json()) == (200, {"answer": "4", "log_prob": 0.0, "reward": 1.0})


@pytest.mark.parametrize("path", ["/verify", "/verify_with_all", "/verify_sync"])
def test_a_judge_that_fails_gives_a_row_for_the_failures_file(client, path):
    reply = client.post(path, json={"answer": "unjudged", "task_id": 3})
    assert reply.status_code == 200
    assert reply.json() == {
        "answer": "unjudged",
        "log_prob": 0.0,
        "task_id": 3,
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": "judge_failed",
        "failure_reason": "the judge is down",
        "instance_config": {"mask_sample": True},
        "_ng_failure_class": "judge_failed",
        "_ng_failure_judge_error": "the judge is down",
    }


def test_request_and_response_are_injected(client):
    assert client.post("/verify_with_all", json={"answer": "4"}).cookies["seen"] == "verify_with_all"


def test_a_bad_request_is_still_refused(client):
    assert client.post("/verify", json={"wrong": 1}).status_code == 422


def test_a_bug_in_the_verifier_is_not_hidden(client):
    assert client.post("/verify", json={"answer": "bug"}).status_code == 500


def test_the_failure_is_logged_with_its_traceback(client, caplog):
    with caplog.at_level(logging.WARNING):
        client.post("/verify", json={"answer": "unjudged"})
    assert "the judge is down" in caplog.text
    assert "Traceback" in caplog.text


async def test_numbers_that_json_cannot_hold_become_null():
    reply = await judge_failsafe(Server().verify)(body=VerifyRequest(answer="unjudged", log_prob=-math.inf))
    assert json.loads(reply.body)["log_prob"] is None


async def test_a_function_that_takes_self_is_guarded_too():
    reply = await judge_failsafe(Server.verify)(Server(), VerifyRequest(answer="unjudged"))
    assert json.loads(reply.body)["answer"] == "unjudged"


async def test_a_hint_that_cannot_be_resolved_does_not_prevent_guarding():
    async def verify(body: OnlyKnownToTypeCheckers):  # noqa: F821
        return body

    assert await judge_failsafe(verify)(3) == 3


def test_a_resources_server_reports_a_failed_judge_over_http():
    class JudgedServer(SimpleResourcesServer):
        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            raise JudgeError("the judge is down")

    config = BaseResourcesServerConfig(host="127.0.0.1", port=0, entrypoint="app.py", name="judged")
    server = JudgedServer(config=config, server_client=MagicMock(spec=ServerClient))
    response = {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    with TestClient(server.setup_webserver()) as client:
        reply = client.post("/verify", json={"responses_create_params": {"input": "?"}, "response": response})
    assert reply.status_code == 200
    assert reply.json()["_ng_failure_class"] == "judge_failed"
    assert reply.json()["responses_create_params"]["input"] == "?"
