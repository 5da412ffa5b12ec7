# SPDX-License-Identifier: Apache-2.0
import json
from unittest.mock import AsyncMock, MagicMock, call

import pytest
from fastapi import Response
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from responses_api_agents.two_step_agent.app import TwoStepAgent, TwoStepAgentConfig, TwoStepRunRequest


def reply(*output: dict, **fields) -> dict:
    return {
        "id": "resp",
        "created_at": 1753983920.0,
        "model": "dummy",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **fields,
    }


CALL = {"arguments": '{"city": "Oslo"}', "call_id": "c1", "name": "weather", "type": "function_call", "id": "c1"}
SAID = {
    "id": "msg",
    "content": [{"annotations": [], "text": "Cold.", "type": "output_text", "logprobs": None}],
    "role": "assistant",
    "status": "completed",
    "type": "message",
}


def mock_reply(content, cookies: dict | None = None) -> MagicMock:
    mock = AsyncMock()
    mock.ok = True
    mock.status = 200
    mock.cookies = cookies or {}
    raw = json.dumps(content)
    mock.read.return_value = raw
    mock.json.return_value = content
    mock.content.read = AsyncMock(return_value=raw.encode())
    return mock


def make_agent(**fields) -> TwoStepAgent:
    config = TwoStepAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="two_step",
        resources_server=ResourcesServerRef(type="resources_servers", name="world"),
        model_server=ModelServerRef(type="responses_api_models", name="policy"),
        **fields,
    )
    return TwoStepAgent(config=config, server_client=MagicMock(spec=ServerClient))


def test_responses_over_http() -> None:
    agent = make_agent()
    app = agent.setup_webserver()
    client = TestClient(app)
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 3,
    }
    agent.server_client.post.side_effect = [
        mock_reply(reply(CALL, usage=usage), {"model": "sticky"}),
        mock_reply({"temperature": -3}, {"world": "w1"}),
        mock_reply(reply(SAID, usage=usage), {"model": "sticky"}),
    ]
    result = client.post("/v1/responses", json={"input": [{"role": "user", "content": "hello"}]})
    assert result.status_code == 200, result.text
    body = result.json()
    assert [item["type"] for item in body["output"]] == ["function_call", "function_call_output", "message"]
    assert body["output"][1]["output"] == '{"temperature": -3}'
    assert body["usage"]["total_tokens"] == 6
    assert {"model", "world"} <= set(result.cookies)

    first, tool, second = agent.server_client.post.call_args_list
    assert first == call(
        server_name="policy",
        url_path="/v1/responses",
        json=NeMoGymResponseCreateParamsNonStreaming(
            input=[NeMoGymEasyInputMessage(content="hello", role="user", type="message")]
        ),
        cookies=None,
    )
    assert tool.kwargs["json"] == {"city": "Oslo"}
    assert second.kwargs["cookies"] == {"model": "sticky"}
    assert len(second.kwargs["json"].input) == 3
    sent = second.kwargs["json"].model_dump(exclude_unset=True)
    assert sent["input"][1] == CALL
    assert sent["input"][2] == {
        "call_id": "c1",
        "output": '{"temperature": -3}',
        "type": "function_call_output",
    }


async def test_run_directly() -> None:
    agent = make_agent()
    agent.server_client.post.side_effect = [
        mock_reply({}, {"session": "1"}),
        mock_reply(reply(SAID), {"session": "2"}),
        mock_reply({"responses_create_params": {"input": "q"}, "response": reply(SAID), "reward": 0.5, "extra": 1}),
    ]
    request = MagicMock()
    request.cookies = {"outer": "0"}
    body = TwoStepRunRequest(responses_create_params={"input": "q"}, answer="Cold.")
    result = await agent.run(request, body)
    assert (result.reward, result.extra) == (0.5, 1)
    seed, own, verify = agent.server_client.post.call_args_list
    assert seed.kwargs["json"]["answer"] == "Cold."
    assert seed.kwargs["cookies"] == {"outer": "0"}
    assert own.kwargs["server_name"] == "two_step"
    assert own.kwargs["url_path"] == "/v1/responses"
    assert verify.kwargs["cookies"] == {"session": "2"}
    assert verify.kwargs["json"]["response"]["output"][0]["content"][0]["text"] == "Cold."


def test_run_over_http_with_indices() -> None:
    agent = make_agent()
    agent.server_client.post.side_effect = [
        mock_reply({}),
        mock_reply(reply(SAID)),
        mock_reply({"responses_create_params": {"input": "q"}, "response": reply(SAID), "reward": 1.0}),
    ]
    row = {"responses_create_params": {"input": "q"}, "_ng_task_index": 0, "_ng_rollout_index": 1, "agent_ref": {}}
    result = TestClient(agent.setup_webserver()).post("/run", json=row)
    assert result.json()["reward"] == 1.0
    assert agent.server_client.post.call_args_list[0].kwargs["json"]["_ng_rollout_index"] == 1


async def test_a_broken_model_reply_is_named() -> None:
    agent = make_agent(max_steps=1)
    agent.server_client.post = AsyncMock(return_value=mock_reply({"object": "error"}))
    request = MagicMock(cookies={})
    with pytest.raises(RuntimeError, match="bad reply"):
        await agent.responses(request, Response(), NeMoGymResponseCreateParamsNonStreaming(input="x"))


async def test_aggregate_is_passed_on() -> None:
    agent = make_agent()
    agent.server_client.post = AsyncMock(return_value=mock_reply({"agent_metrics": {"mean/reward": 1.0}}))
    client = TestClient(agent.setup_webserver())
    assert client.post("/aggregate_metrics", json={"verify_responses": []}).json()["agent_metrics"] == {
        "mean/reward": 1.0
    }


def test_responses_at_the_prefixed_paths() -> None:
    agent = make_agent()
    client = TestClient(agent.setup_webserver())
    for prefix in ("/ng-rollout/3-1", "/ng-rollout/3-1/training-token-capture"):
        agent.server_client.post = AsyncMock(return_value=mock_reply(reply(SAID)))
        assert client.post(f"{prefix}/v1/responses", json={"input": "x"}).status_code == 200
        assert agent.server_client.post.call_args.kwargs["url_path"] == f"{prefix}/v1/responses"
