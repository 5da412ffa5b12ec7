# SPDX-License-Identifier: Apache-2.0
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import AggregateMetricsRequest
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from resources_servers.unit_quiz.app import UnitQuizConfig, UnitQuizServer, UnitQuizVerifyRequest


@pytest.fixture
def server() -> UnitQuizServer:
    config = UnitQuizConfig(host="127.0.0.1", port=1234, entrypoint="app.py", name="unit_quiz", domain="math")
    return UnitQuizServer(config=config, server_client=MagicMock(spec=ServerClient))


def verify_body(text: str, expected: float = 3.0, **extra) -> dict:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "How long?"}]},
        "response": {
            "id": "r",
            "created_at": 1234567890,
            "model": "m",
            "object": "response",
            "output": [
                {
                    "id": "m1",
                    "content": [{"annotations": [], "text": text, "type": "output_text"}],
                    "role": "assistant",
                    "status": "completed",
                    "type": "message",
                }
            ],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        },
        "expected": expected,
        **extra,
    }


@pytest.mark.parametrize(("text", "reward"), [("about 3", 1.0), ("3 or 4", 0.0), ("none", 0.0)])
def test_verify_over_http(server: UnitQuizServer, text: str, reward: float) -> None:
    client = TestClient(server.setup_webserver())
    reply = client.post("/verify", json=verify_body(text))
    assert reply.status_code == 200, reply.text
    assert reply.json()["reward"] == reward
    assert reply.json()["unit"] == "m"


@pytest.mark.asyncio
async def test_verify_directly(server: UnitQuizServer) -> None:
    body = UnitQuizVerifyRequest.model_validate(verify_body("2.5 km", expected=2.5, unit="km"))
    assert isinstance(body.response, NeMoGymResponse)
    result = await server.verify(body, MagicMock())
    assert result.model_dump()["extracted"] == "2.5"
    assert body.responses_create_params.input[0].content == "How long?"


def rows() -> list[dict]:
    found = []
    for task, answers in enumerate([("3", "3", "4"), ("1", None, "1")]):
        for rollout, answer in enumerate(answers):
            found.append(
                {
                    TASK_INDEX_KEY_NAME: task,
                    ROLLOUT_INDEX_KEY_NAME: rollout,
                    "reward": 1.0 if answer == "3" else 0.0,
                    "extracted": answer,
                    "unit": ["m", "km"][task],
                    "response": {"usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}},
                }
            )
    return found


async def test_aggregate_metrics(server: UnitQuizServer) -> None:
    result = await server.aggregate_metrics(AggregateMetricsRequest(verify_responses=rows()))
    assert result.agent_metrics["rollouts_seen"] == 6
    assert result.agent_metrics["mean/reward"] == pytest.approx(2 / 6)
    assert result.agent_metrics["pass@3/accuracy"] == pytest.approx(50.0)
    assert result.agent_metrics["majority@3/accuracy"] == pytest.approx(50.0)
    assert result.agent_metrics["m/pass@1[avg-of-3]/accuracy"] == pytest.approx(200 / 3)
    assert result.key_metrics["pass@1[avg-of-3]/accuracy"] == pytest.approx(100 / 3)
    assert result.key_metrics["mean/input_tokens"] == 10
    assert "pass@3/no_answer" not in result.key_metrics
    assert [group["unit"] for group in result.group_level_metrics] == ["m", "km"]


def test_aggregate_metrics_over_http(server: UnitQuizServer) -> None:
    client = TestClient(server.setup_webserver())
    reply = client.post("/aggregate_metrics", json={"verify_responses": rows()}).json()
    assert set(reply) == {"group_level_metrics", "agent_metrics", "key_metrics"}
    empty = client.post("/aggregate_metrics", json={"verify_responses": []})
    assert empty.status_code == 200


def test_metrics_without_a_real_server() -> None:
    tasks = [[{"reward": 1.0, "unit": "m", "extracted": "3"}, {"reward": 0.0, "unit": "m", "extracted": "4"}]]
    mock = MagicMock(spec=UnitQuizServer)
    mock._score_fn = UnitQuizServer._score_fn
    metrics = UnitQuizServer.compute_metrics(mock, tasks)
    assert metrics["pass@2/accuracy"] == pytest.approx(100.0)
    assert "pass@1[avg-of-2]/accuracy/std_err_across_runs" in metrics
    assert "pass@1[avg-of-2]/accuracy/avg_sample_std_dev" in metrics
    assert UnitQuizServer.get_key_metrics(mock, metrics)["pass@2/accuracy"] == pytest.approx(100.0)
