# SPDX-License-Identifier: Apache-2.0
"""An endpoint that wants another key or knows no such model: the run ends early, and loses nothing by it."""

from typing import Any

import aiohttp
import httpx
import openai
import pytest
from fastapi import HTTPException
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from nemo_gym._transport.failures import HEADER, Failure, decode_failure
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.base_responses_api_model import SimpleResponsesAPIModel
from nemo_gym.testing import asked, running, scripted_model
from responses_api_agents.simple_agent.app import SimpleAgent
from tests.support.eval_runs import fake_endpoint, planned
from tests.support.small_servers import free_port
from tests.support.verifier_runs import VerifierRunner

pytestmark = pytest.mark.thorough

TASKS = 40
REFUSALS = {
    "401": "refuses this key: 3 calls in a row were answered 401.",
    "404": "has no such model, or is at another URL: 3 calls in a row were answered 404.",
}


@pytest.fixture(scope="module")
def endpoint():
    with fake_endpoint() as made:
        yield made


@pytest.mark.slow
@pytest.mark.fault(
    place="Model endpoint",
    fault="It answers 401, 403 or 404 to every call",
    outcome="The run ends after a handful of calls with the cause; `--resume` with a working key plays every rollout.",
)
@pytest.mark.parametrize("status", ["401", "404"])
def test_a_refusing_endpoint_ends_the_run_after_a_handful_and_uses_no_rollout_up(
    tmp_path, endpoint, status, monkeypatch
):
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "1")
    runner = VerifierRunner(tmp_path, endpoint, free_port(), "")
    arguments = ["-i", runner.write_tasks(TASKS), "--concurrency", "4"]
    endpoint.set(faults={status: 1.0})
    endpoint.calls(then_forget=True)
    refused = runner.run(*arguments)
    assert refused.returncode == 1
    assert f"Error: the run was aborted.\nthe model's endpoint {REFUSALS[status]}" in refused.stderr
    assert refused.stderr.count(f"answered {status} ") == 2, "as it happens, and as the reason to end"
    assert endpoint.calls() <= 3 + 4, "three refusals, and what was under way"
    endpoint.set(faults={})
    resumed = runner.run(*arguments, "--resume", "--model-api-key", "sk-working")
    assert resumed.returncode == 0, resumed.stderr
    assert sorted(runner.keys()) == planned(TASKS)


@pytest.mark.slow
@pytest.mark.fault(
    place="Model endpoint",
    fault="It answers 404 once in the middle of a run",
    outcome="That rollout fails, the others are scored, and `--resume` plays the one that failed.",
)
def test_a_single_404_is_an_ordinary_failure(tmp_path, endpoint):
    runner = VerifierRunner(tmp_path, endpoint, free_port(), "")
    arguments = ["-i", runner.write_tasks(TASKS), "--concurrency", "4"]
    endpoint.set(marked_faults={"task 20": "404"})
    done = runner.run(*arguments)
    assert done.returncode == 1
    assert runner.keys("failures") == [(20, 0)]
    assert len(runner.keys()) == TASKS - 1
    assert "hint: `--resume` runs them again;" in done.stderr
    endpoint.set(marked_faults={})
    assert runner.run(*arguments, "--resume").returncode == 0


@pytest.mark.slow
@pytest.mark.fault(
    place="Command line",
    fault="Rollouts have failed as often as they may",
    outcome="The hint says that `--resume` does not play them, and it does not.",
)
def test_the_hint_promises_only_what_resume_does(tmp_path, endpoint, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "2")
    runner = VerifierRunner(tmp_path, endpoint, free_port(), "if body.number < 3: raise ValueError(body.number)")
    arguments = ["-i", runner.write_tasks(6)]
    assert "hint: `--resume` runs them again;" in runner.run(*arguments).stderr
    for _ in range(2):
        hint = "hint: `--resume` runs none of them (3 failed for good, or as often as `NEMO_GYM_MAX_ROLLOUT_ATTEMPTS`"
        assert hint in runner.run(*arguments, "--resume").stderr
    assert len(runner.rows("failures")) == 2 * 3


# --- whoever made the call --------------------------------------------------------------------------------------------

URL_CALLED = "https://models.example/v1/chat/completions"


def error_of_aiohttp(status: int) -> Exception:
    url = URL(URL_CALLED)
    info = aiohttp.RequestInfo(url, "POST", CIMultiDictProxy(CIMultiDict()), url)
    return aiohttp.ClientResponseError(info, (), status=status, message="not for you")


def error_of_openai(status: int) -> Exception:
    reply = httpx.Response(status, request=httpx.Request("POST", URL_CALLED))
    return openai.APIStatusError("not for you", response=reply, body=None)


ERRORS = pytest.mark.parametrize(
    "make_error", [error_of_aiohttp, error_of_openai, lambda status: HTTPException(status, "not for you")]
)


class World(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


AGENT = {
    "resources_server": {"type": "resources_servers", "name": "world"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}


async def play(agent: type, model: Any) -> Failure:
    async with running(agent=(agent, AGENT), world=World, policy_model=model) as client:
        answer = await client.post("agent", "/run", json={"responses_create_params": asked("go")})
        return decode_failure(answer.headers[HEADER])


@pytest.mark.fault(
    place="Model server",
    fault="One of somebody else's passes a refusal of its endpoint on",
    outcome="The refusal is known as one, as from a model server of ours.",
)
@pytest.mark.parametrize("status", [401, 403, 404])
@ERRORS
async def test_a_refusal_is_known_through_a_foreign_model_server(make_error, status):
    class Model(SimpleResponsesAPIModel):
        async def responses(self, body):
            raise make_error(status)

        async def chat_completions(self, body):
            raise AssertionError

    failure = await play(SimpleAgent, Model)
    assert (failure.is_refused, failure.cause) == (True, str(status))
    assert "not for you" in failure.message


@pytest.mark.fault(
    place="Agent server",
    fault="One that calls the endpoint with a client of its own is refused",
    outcome="The refusal is known as one.",
)
@pytest.mark.parametrize("make_error", [error_of_aiohttp, error_of_openai])
async def test_a_refusal_is_known_through_an_agent_with_a_client_of_its_own(make_error):
    class Agent(SimpleAgent):
        async def responses(self, request, response, body):
            raise make_error(401)

    assert (await play(Agent, scripted_model("unused"))).is_refused
