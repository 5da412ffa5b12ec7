# SPDX-License-Identifier: Apache-2.0
"""The first cause of a failed rollout is named, however many servers it passes on its way out."""

import pytest
from hypothesis import given, strategies as st

from nemo_gym._transport.call_errors import (
    InvalidServerReply,
    ServerDeadlineExceeded,
    ServerResponseError,
    ServerUnreachable,
)
from nemo_gym._transport.failures import HEADER, Failure, build_failure, decode_failure
from nemo_gym._wire.schema.format_errors import InvalidModelReply
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.base_responses_api_model import SimpleResponsesAPIModel
from nemo_gym.errors import JudgeError, RolloutFailure
from nemo_gym.testing import asked, reply, running, scripted_model, tool_call
from responses_api_agents.simple_agent.app import SimpleAgent

MODEL = "http://m:1/v1/responses"


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (ServerResponseError("POST", MODEL, 429), "model_endpoint", True),
        (ServerResponseError("POST", MODEL, 500), "model_endpoint", True),
        (ServerResponseError("POST", MODEL, 400), "model_endpoint", False),
        (ServerResponseError("POST", "http://r:1/verify", 500), "verifier", False),
        (ServerResponseError("POST", "http://r:1/ng-rollout/3-1/verify", 500), "verifier", False),
        (ServerResponseError("POST", "http://r:1/get_weather", 500), "tool_server", False),
        (ServerUnreachable("POST", MODEL, "refused"), "model_endpoint", True),
        (ServerUnreachable("POST", "http://r:1/seed_session", "refused"), "tool_server", True),
        (ServerDeadlineExceeded("POST", MODEL, 5), "timeout", True),
        (InvalidServerReply("POST", MODEL, 200, "text/html", b"<html>", "no"), "model_reply_invalid", True),
        (InvalidModelReply("no choices", {}), "model_reply_invalid", True),
        (JudgeError("asleep"), "verifier", True),
        (RolloutFailure("verifier", "NaN", True), "verifier", True),
        (RolloutFailure("something new", "?"), "agent", False),
        (KeyError("x"), "agent", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_error_has_a_kind_and_says_whether_another_attempt_may_help(error, kind, retryable):
    failure = build_failure(error, "agent", "a/run")
    assert (failure.kind, failure.retryable) == (kind, retryable)
    assert failure.message


@given(st.text(), st.text(max_size=500), st.booleans())
def test_a_failure_survives_its_header(boundary, message, retryable):
    failure = Failure("verifier", boundary, retryable, message)
    header = failure.encode()
    header.encode("latin-1")
    assert "\n" not in header
    assert decode_failure(header) == failure


@pytest.mark.parametrize("junk", [None, "", "x", "[]", '{"kind": 1}'])
def test_what_is_no_failure_is_none(junk):
    assert decode_failure(junk) is None


# --- through real servers --------------------------------------------------------------------------------------------

AGENT = (
    SimpleAgent,
    {
        "resources_server": {"type": "resources_servers", "name": "world"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    },
)
TOOL = {"type": "function", "name": "dig", "parameters": {"type": "object"}, "strict": False}


class World(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        if "crash" in body.response.output_text:
            raise ZeroDivisionError("a bug in the verifier")
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


class DownModel(SimpleResponsesAPIModel):
    async def responses(self, body):
        raise ServerResponseError("POST", "http://endpoint/v1/responses", 503, "Busy", b"overloaded")

    async def chat_completions(self, body):
        raise AssertionError


async def failure_with(**servers) -> Failure:
    async with running(agent=AGENT, **servers) as client:
        answer = await client.post("agent", "/run", json={"responses_create_params": asked("go", tools=[TOOL])})
        assert answer.status == 500
        return decode_failure(answer.headers[HEADER])


async def test_a_model_endpoint_that_is_down_is_named_through_model_server_and_agent():
    failure = await failure_with(world=World, policy_model=DownModel)
    assert (failure.kind, failure.boundary, failure.retryable) == (
        "model_endpoint",
        "http://endpoint/v1/responses",
        True,
    )
    assert "overloaded" in failure.message


async def test_a_bug_in_a_verifier_is_the_verifiers():
    failure = await failure_with(world=World, policy_model=scripted_model("crash"))
    assert (failure.kind, failure.boundary, failure.retryable) == ("verifier", "world/verify", False)
    assert "a bug in the verifier" in failure.message


async def test_a_bug_in_a_verifier_is_the_verifiers_under_a_rollout_path_too(tmp_path):
    capture = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
    row = {"responses_create_params": asked("go"), "_ng_task_index": 0, "_ng_rollout_index": 0}
    servers = {"agent": AGENT, "world": World, "policy_model": scripted_model("crash")}
    async with running(global_config=capture, **servers) as client:
        answer = await client.post("agent", "/run", json=row)
    assert decode_failure(answer.headers[HEADER]).kind == "verifier"


async def test_a_tool_server_that_is_gone_is_named():
    async with running(world=World) as gone:
        dead = gone.global_config_dict.world
    model = scripted_model(reply(tool_call("dig", {})))
    async with running(global_config={"world": dead}, agent=AGENT, policy_model=model) as client:
        client.global_config_dict.world.resources_servers[next(iter(dead.resources_servers))].host = "127.0.0.1"
        answer = await client.post("agent", "/run", json={"responses_create_params": asked("go", tools=[TOOL])})
    failure = decode_failure(answer.headers[HEADER])
    assert (failure.kind, failure.retryable) == ("tool_server", True)
