# SPDX-License-Identifier: Apache-2.0
from unittest.mock import MagicMock

import pytest
from omegaconf import OmegaConf
from pydantic import ConfigDict

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import Body, Request, SimpleResponsesAPIAgent
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import asked, reply, running, server_config


class Row(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class Tracked(BaseVerifyResponse):
    rollout: str | None


class Agent(SimpleResponsesAPIAgent):
    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        return reply(self.url_path_for_request("/v1/responses", request))

    async def run(self, body: Row = Body()) -> Tracked:
        return Tracked(
            responses_create_params=body.responses_create_params,
            response=reply("done"),
            reward=0.5,
            rollout=current_rollout_id(),
        )


def agent(global_config=None, **config) -> Agent:
    client = MagicMock(spec=ServerClient)
    if global_config is not None:
        client.global_config_dict = global_config
    return Agent(config=server_config(Agent, **config), server_client=client)


ROW = {"responses_create_params": {"input": "hi"}, "_ng_task_index": 3, "_ng_rollout_index": 1}
BODY = Row.model_validate(ROW)


def test_an_agent_whose_post_init_was_replaced_still_makes_an_app(monkeypatch):
    monkeypatch.setattr(Agent, "model_post_init", lambda self, context: None)
    paths = {route.path for route in agent().setup_webserver().routes}
    assert {"/run", "/v1/responses"} <= paths


async def test_a_run_knows_which_rollout_it_is():
    async with running(agent=Agent) as client:
        answer = await (await client.post("agent", "/run", json=ROW)).json()
    assert (answer["reward"], answer["rollout"]) == (0.5, "3-1")


@pytest.mark.parametrize(
    "prefix", ["", "/ng-rollout/3-1", "/ng-rollout/3-1/training-token-capture"], ids=["plain", "rollout", "tokens"]
)
async def test_responses_are_also_served_under_the_rollout_prefix_which_is_passed_on(prefix):
    async with running(agent=Agent) as client:
        answer = await client.post("agent", f"{prefix}/v1/responses", json=asked("hi"))
        assert NeMoGymResponse.model_validate(await answer.json()).output_text == f"{prefix}/v1/responses"


@pytest.mark.parametrize("settings", [None, {}, {"observability_enabled": False}, OmegaConf.create({})])
def test_nothing_is_prefixed_while_nothing_is_captured(settings):
    made = agent(settings)
    assert made.rollout_id_from_run(BODY) is None
    assert made.url_path_for_run("/v1/responses", BODY) == "/v1/responses"
    assert made.base_url_for_run("http://m:1/v1", BODY) == "http://m:1/v1"


def test_model_call_capture_prefixes_paths_and_urls():
    made = agent({"observability_enabled": True})
    assert made.url_path_for_run("/v1/responses", BODY) == "/ng-rollout/3-1/v1/responses"
    assert made.base_url_for_run("http://m:1/v1", BODY) == "http://m:1/ng-rollout/3-1/v1"


def test_token_capture_is_for_agents_that_ask_for_it():
    settings = {"token_id_capture": {"enabled": True}}
    assert agent(settings).url_path_for_run("/v1/responses", BODY) == "/v1/responses"
    capturing = agent(settings, token_id_capture=True)
    assert capturing.url_path_for_run("/x", BODY) == "/ng-rollout/3-1/training-token-capture/x"


def test_the_base_url_of_a_model_server_is_found_by_its_name():
    settings = OmegaConf.create({"m": {"responses_api_models": {"x": {"host": "h", "port": 5}}}})
    made = agent(settings)
    made.server_client._build_server_base_url.side_effect = lambda config: f"http://{config.host}:{config.port}"
    assert made.resolve_model_base_url("m") == "http://h:5/v1"
    assert made.resolve_model_base_url("m", "3-1") == "http://h:5/ng-rollout/3-1/v1"


async def test_an_agent_that_skips_verification_has_no_scores_to_aggregate():
    with pytest.warns(RuntimeWarning, match="skip_verification=True"):
        metrics = await agent(skip_verification=True).aggregate_metrics(MagicMock(verify_responses=[{"reward": 1.0}]))
    assert metrics.agent_metrics == {}
