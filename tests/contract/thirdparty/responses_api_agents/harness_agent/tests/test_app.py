# SPDX-License-Identifier: Apache-2.0
from unittest.mock import AsyncMock, MagicMock, patch

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.server_utils import ServerClient
from responses_api_agents.harness_agent import app as harness_app
from responses_api_agents.harness_agent.app import HarnessAgent, HarnessAgentConfig, HarnessRunRequest

GLOBAL_CONFIG = {"policy": {"responses_api_models": {"vllm_model": {"host": "10.0.0.1", "port": 9000}}}}


def make_agent(client=None, **fields) -> HarnessAgent:
    config = HarnessAgentConfig(
        host="localhost",
        port=9,
        entrypoint="app.py",
        name="harness",
        model_server={"type": "responses_api_models", "name": "policy"},
        **fields,
    )
    return HarnessAgent(config=config, server_client=client or MagicMock(spec=ServerClient))


def run_request(**fields) -> HarnessRunRequest:
    return HarnessRunRequest(responses_create_params={"input": []}, instance_id="i-1", **fields)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncMock:
    mock = AsyncMock(return_value="solved it")
    monkeypatch.setattr(harness_app, "run_harness", mock)
    return mock


async def test_run_with_a_patched_lookup(harness: AsyncMock) -> None:
    agent = make_agent(MagicMock(spec=ServerClient, global_config_dict={}), harness_kwargs={"depth": 2})
    agent.server_client._build_server_base_url.return_value = "http://model:1"
    with patch("nemo_gym.base_responses_api_agent.get_first_server_config_dict", return_value={"host": "x"}) as lookup:
        result = await agent.run(run_request(_ng_task_index=4, _ng_rollout_index=2))
    lookup.assert_called_once_with({}, "policy")
    harness.assert_awaited_once_with("http://model:1/v1", "i-1", depth=2)
    assert result.reward == 1.0
    assert result.ng_agent_observations["records"][0]["invocation_id"] == "i-1"
    assert result.model_dump()["_ng_task_index"] == 4


async def test_run_with_a_plain_dict_as_config(harness: AsyncMock) -> None:
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = {**GLOBAL_CONFIG, "observability_enabled": True}
    client._build_server_base_url = lambda config: f"http://{config['host']}:{config['port']}"
    agent = make_agent(client)
    await agent.run(run_request(_ng_task_index=4, _ng_rollout_index=2))
    assert harness.await_args.args[0] == "http://10.0.0.1:9000/ng-rollout/4-2/v1"


async def test_run_with_a_real_client(harness: AsyncMock) -> None:
    head = {"host": "h", "port": 1}
    agent = make_agent(ServerClient(head_server_config=head, global_config_dict=OmegaConf.create(GLOBAL_CONFIG)))
    await agent.run(run_request())
    assert harness.await_args.args[0] == "http://10.0.0.1:9000/v1"
    assert agent.model_address() == "http://10.0.0.1:9000"


def test_a_real_client_takes_plain_blocks() -> None:
    client = ServerClient(head_server_config={"host": "h", "port": 1}, global_config_dict=OmegaConf.create({}))
    assert client._build_server_base_url(OmegaConf.create({"host": "a", "port": 2})) == "http://a:2"
    assert client._build_server_base_url({"host": "a", "port": 2}) == "http://a:2"
    assert client._build_server_base_url(MagicMock(host="a", port=2)) == "http://a:2"


def test_paths_without_any_config() -> None:
    agent = make_agent()
    body = run_request(_ng_task_index=1, _ng_rollout_index=1)
    assert agent.rollout_id_from_run(body) is None
    assert agent.url_path_for_run("/v1/responses", body) == "/v1/responses"
    assert agent.base_url_for_run("http://m:1/v1", body) == "http://m:1/v1"
    assert agent.url_path_for_request("/v1/responses", MagicMock()) == "/v1/responses"
    assert agent._model_call_capture_enabled() is False
    assert agent._token_id_capture_enabled() is False


@pytest.mark.parametrize("settings", [{}, {"observability_enabled": False}, {"token_id_capture": {"enabled": False}}])
def test_paths_with_capture_off(settings: dict) -> None:
    agent = make_agent(MagicMock(spec=ServerClient, global_config_dict=settings))
    assert agent.url_path_for_run("/x", {"_ng_task_index": 1, "_ng_rollout_index": 1}) == "/x"


def test_paths_with_capture_on() -> None:
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = OmegaConf.create({"observability_enabled": True})
    agent = make_agent(client)
    body = run_request(_ng_task_index=1, _ng_rollout_index=0, _ng_attempt_index=2)
    assert agent.rollout_id_from_run(body) == "1-0-a2"
    assert agent.url_path_for_run("/v1/responses", body) == "/ng-rollout/1-0-a2/v1/responses"
    assert agent.base_url_for_run("http://m:1/v1", body) == "http://m:1/ng-rollout/1-0-a2/v1"
    client.global_config_dict = {"token_id_capture": {"enabled": True, "all_agents": True}}
    assert agent.url_path_for_run("/x", body) == "/ng-rollout/1-0-a2/training-token-capture/x"


@pytest.mark.parametrize(
    ("error", "kind", "terminal"),
    [(TimeoutError(), "harness_timeout", None), (ValueError("no such task"), "bad_task", True)],
)
def test_failures_are_rows_over_http(harness: AsyncMock, error: Exception, kind: str, terminal: bool | None) -> None:
    harness.side_effect = error
    client = MagicMock(spec=ServerClient, global_config_dict=GLOBAL_CONFIG)
    client._build_server_base_url.return_value = "http://m:1"
    row = {"responses_create_params": {"input": "x"}, "instance_id": "i", "_ng_task_index": 0, "_ng_rollout_index": 0}
    reply = TestClient(make_agent(client).setup_webserver()).post("/run", json=row)
    assert reply.status_code == 200, reply.text
    assert reply.json()["_ng_failure_class"] == kind
    assert reply.json().get("_ng_failure_terminal") is terminal
    assert reply.json()["reward"] == 0.0


async def test_skipped_verification_has_nothing_to_aggregate() -> None:
    agent = make_agent(skip_verification=True)
    with pytest.warns(RuntimeWarning):
        result = TestClient(agent.setup_webserver()).post("/aggregate_metrics", json={"verify_responses": []})
    assert result.json()["agent_metrics"] == {}


def test_default_aggregate() -> None:
    rows = [{"_ng_task_index": 0, "_ng_rollout_index": i, "reward": float(i)} for i in range(2)]
    reply = TestClient(make_agent().setup_webserver()).post("/aggregate_metrics", json={"verify_responses": rows})
    assert reply.json()["key_metrics"] == {"mean/reward": 0.5}
