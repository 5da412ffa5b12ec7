# SPDX-License-Identifier: Apache-2.0
"""A failure names its cause: the rate limit behind a timeout, and the line of the verifier's own code."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, strategies as st
from omegaconf import OmegaConf

from nemo_gym import openai_utils
from nemo_gym._rollouts.journal import build_failed_row
from nemo_gym._rollouts.outcomes import Failed
from nemo_gym._rollouts.play import find_requested_pause
from nemo_gym._servers.http.guard import ErrorsAsJson
from nemo_gym._transport.deadline import SECONDS_LEFT_HEADER, Deadline
from nemo_gym._transport.failures import HEADER, Failure, decode_failure
from nemo_gym._transport.retries import RetryRule
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient, read_failure
from nemo_gym.testing import running, scripted_model
from responses_api_models.openai_model.app import SimpleModelServer
from tests.support.fake_openai import FakeOpenAI, of_json, rate_limited, response
from tests.support.one_rollout import play_rollout


class World(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=self.divide(1, 0))

    def divide(self, one: int, other: int) -> float:
        return one / other


def openai_model(fake: FakeOpenAI) -> Any:
    fields = {"openai_base_url": fake.base_url, "openai_api_key": "k", "openai_model": "m"}
    return SimpleModelServer, fields


@pytest.mark.fault(
    place="Model endpoint",
    fault="It answers 429 with a `Retry-After` that is longer than `--timeout`",
    outcome="The rollout fails as `model_endpoint` with cause 429, without waiting for the deadline.",
)
async def test_a_rate_limit_is_not_hidden_behind_a_timeout():
    async with FakeOpenAI(default=rate_limited("50")) as fake:
        outcome = await play_rollout(World, openai_model(fake), timeout_s=40)
    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.failure.cause) == ("model_endpoint", "429")
    assert "slow down" in outcome.failure.message
    assert outcome.elapsed_s < 40


async def test_a_server_in_another_process_is_told_when_its_caller_gives_up():
    async with FakeOpenAI(default=of_json({})) as fake:
        host, port = fake.url.removeprefix("http://").split(":")
        config = {"far": {"resources_servers": {"far": {"host": host, "port": int(port)}}}}
        head = BaseServerConfig(host="x", port=1)
        client = ServerClient(head_server_config=head, global_config_dict=OmegaConf.create(config))
        await client.post("far", "/verify", json={})
        deadline = Deadline(asyncio.get_running_loop().time() + 30)
        await client.post("far", "/verify", json={})
        deadline.end()
    without, told = (call.headers.get(SECONDS_LEFT_HEADER) for call in fake.received)
    assert without is None
    assert 0 < float(told) <= 30


async def test_a_server_that_was_told_so_does_not_wait_longer_for_an_endpoint():
    async with FakeOpenAI(default=rate_limited("50")) as fake, running(policy_model=openai_model(fake)) as client:
        told = {SECONDS_LEFT_HEADER: "40"}
        answer = await client.get("policy_model", "/", headers={SECONDS_LEFT_HEADER: "nonsense"})
        assert answer.ok
        # Sent as text: a call in this process that sends JSON needs no headers.
        answer = await client.post(
            "policy_model",
            "/v1/responses",
            data='{"input": "hi"}',
            headers={"content-type": "application/json", **told},
        )
    failure = read_failure(answer)
    assert failure is not None
    assert (failure.kind, failure.cause) == ("model_endpoint", "429")
    assert len(fake.received) == 1


@pytest.mark.fault(
    place="Model endpoint",
    fault="It answers 429 with a `Retry-After` of 0, below 0, in the past or without meaning",
    outcome="The pauses between attempts are our own, which grow.",
)
@pytest.mark.parametrize("value", ["0", "-5", "soon", "", "Wed, 01 Jan 2020 12:00:00 GMT"])
async def test_an_endpoint_cannot_ask_to_be_called_in_a_tight_loop(value, monkeypatch):
    attempts = list[int]()
    monkeypatch.setattr(RetryRule, "draw_pause_s", lambda rule, attempt, rng: attempts.append(attempt) or 0.0)
    async with FakeOpenAI(rate_limited(value), rate_limited(value), default=response("2")) as fake:
        client = openai_utils.NeMoGymAsyncOpenAI(base_url=fake.base_url, api_key="k")
        await client.create_response(input="hi")
    assert attempts == [1, 2]


@pytest.mark.parametrize("words", ["try again in 0 s", "retry_after: 0", "Please try again in 5ms"])
def test_nor_can_it_in_words(words):
    assert find_requested_pause({}, words) is None


@pytest.mark.fault(
    place="Verifier",
    fault="Its code raises",
    outcome="The failures file holds the traceback beside the message.",
)
async def test_the_traceback_of_a_verifier_is_in_the_failures_file():
    outcome = await play_rollout(World, scripted_model("2"))
    assert isinstance(outcome, Failed)
    failure = build_failed_row(outcome)["_ng_failure"]
    assert failure["kind"] == "verifier"
    assert failure["traceback"].endswith("ZeroDivisionError: division by zero")
    assert "reward=self.divide(1, 0)" in failure["traceback"]
    assert "return one / other" in failure["traceback"]


@given(message=st.text(max_size=3000), traceback=st.text(st.characters(min_codepoint=0x4E00), max_size=3000))
def test_a_failure_of_any_length_fits_into_a_header(message, traceback):
    header = Failure("verifier", "v/verify", False, message, traceback=traceback).encode()
    assert len(header) < 8190
    found = decode_failure(header)
    assert found is not None
    assert message.startswith(found.message)
    assert traceback.endswith(found.traceback)


@pytest.mark.fault(
    place="Server",
    fault="Whoever called it has given up, as after `--timeout`, and what it waits for never comes",
    outcome="The call is ended a second later, and keeps no connection.",
)
async def test_a_call_that_nobody_waits_for_any_more_is_ended():
    has_ended, sent = asyncio.Event(), []

    async def wait_for_ever(scope, receive, send):
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    async def send(message):
        sent.append(message)

    left = (SECONDS_LEFT_HEADER.encode(), b"-1")
    scope = {"type": "http", "method": "POST", "path": "/run", "headers": [left]}
    await ErrorsAsJson(wait_for_ever, server_name="agent")(scope, None, send)
    assert has_ended.is_set()
    assert sent[0]["status"] == 500
    assert decode_failure(dict(sent[0]["headers"])[HEADER.lower().encode()].decode()).kind == "timeout"
