# SPDX-License-Identifier: Apache-2.0
from typing import ClassVar

import pytest

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
    normalize_tool_name,
)
from nemo_gym.errors import JudgeError
from nemo_gym.testing import asked, reply, running


class StatelessConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class Verify(BaseVerifyRequest):
    expected: str


class Scored(BaseVerifyResponse):
    expected: str


class Exact(SimpleResourcesServer):
    config: StatelessConfig

    async def verify(self, body: Verify) -> Scored:
        if body.expected == "judge":
            raise JudgeError("the judge is asleep")
        return Scored(**body.model_dump(), reward=float(body.response.output_text == body.expected))

    def get_key_metrics(self, agent_metrics):
        return {"score": agent_metrics["mean/reward"]}


def verify_body(said: str, expected: str, **extra) -> dict:
    return {"responses_create_params": asked("?"), "response": reply(said), "expected": expected, **extra}


@pytest.mark.parametrize(("said", "reward"), [("Oslo", 1.0), ("Bergen", 0.0), ("", 0.0)])
async def test_verify_gives_the_task_the_response_and_the_reward(said, reward):
    async with running(exact=Exact) as client:
        answer = await (await client.post("exact", "/verify", json=verify_body(said, "Oslo"))).json()
    assert (answer["reward"], answer["expected"]) == (reward, "Oslo")
    assert answer["response"]["output"][0]["content"][0]["text"] == said


async def test_fields_that_the_request_does_not_declare_are_dropped():
    async with running(exact=Exact) as client:
        answer = await (await client.post("exact", "/verify", json=verify_body("a", "a", unknown=1))).json()
    assert "unknown" not in answer


async def test_a_failed_judge_is_marked_and_not_scored():
    async with running(exact=Exact) as client:
        answer = await client.post("exact", "/verify", json=verify_body("a", "judge"))
        row = await answer.json()
    assert (answer.status, row["_ng_failure_class"]) == (200, "judge_failed")
    assert "the judge is asleep" in row["_ng_failure_judge_error"]


async def test_seeding_a_stateless_server_is_an_empty_reply_with_a_session():
    async with running(exact=Exact) as client:
        answer = await client.post("exact", "/seed_session", json={"anything": 1})
        assert (answer.status, await answer.json()) == (200, {})
        assert "Exact___exact" in answer.cookies


class Lasting(SimpleResourcesServer):
    REVERIFY_MODE = ReverifyMode.UNSUPPORTED
    MEAN_REWARDS_BY = "kind"

    async def verify(self, body: Verify) -> Scored:
        raise NotImplementedError


class LastingWithConfig(Lasting):
    config: StatelessConfig


class Undecided(Exact):
    config: BaseResourcesServerConfig


@pytest.mark.parametrize(
    ("server", "mode"),
    [
        (Exact, "stateless"),
        (Lasting, "unsupported"),
        (LastingWithConfig, "stateless"),
        (Undecided, "unknown"),
    ],
)
async def test_the_server_or_its_config_says_whether_it_can_verify_again(server, mode):
    async with running(server=server) as client:
        assert await (await client.get("server", "/reverify_mode")).json() == mode


async def test_a_server_may_have_the_mean_reward_for_each_value_of_a_field():
    rows = [
        {"_ng_task_index": task, "_ng_rollout_index": 0, "reward": reward, "kind": kind}
        for task, (kind, reward) in enumerate([("a", 1.0), ("b", 0.0), ("a", 0.5)])
    ]
    async with running(lasting=Lasting) as client:
        answer = await (await client.post("lasting", "/aggregate_metrics", json={"verify_responses": rows})).json()
    metrics = answer["agent_metrics"]
    assert (metrics["mean/reward/a"], metrics["mean/reward/b"]) == (0.75, 0.0)


async def test_metrics_are_aggregated_with_the_servers_own_key_metrics():
    rows = [{"_ng_task_index": 0, "_ng_rollout_index": i, "reward": r} for i, r in enumerate((1.0, 0.0))]
    async with running(exact=Exact) as client:
        answer = await (await client.post("exact", "/aggregate_metrics", json={"verify_responses": rows})).json()
    assert answer["key_metrics"] == {"score": 0.5}
    assert answer["agent_metrics"]["mean/reward"] == 0.5


@pytest.mark.parametrize(
    ("name", "server", "expected"),
    [
        ("mcp__weather__get", "weather", "get"),
        ("mcp__other__get", "weather", "mcp__other__get"),
        ("mcp__other__get", None, "get"),
        ("get", None, "get"),
        ("mcp__", None, "mcp__"),
    ],
)
def test_tool_names_lose_the_namespace_of_mcp_clients(name, server, expected):
    assert normalize_tool_name(name, server) == expected
