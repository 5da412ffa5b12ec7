# SPDX-License-Identifier: Apache-2.0
"""The older name leads to the same environment."""

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import running, scripted_model
from resources_servers.code_gen import generate_data
from resources_servers.code_gen.app import CodeGenResourcesServer, CodeGenResourcesServerConfig
from resources_servers.comp_coding.app import CompCodingResourcesServer, CompCodingResourcesServerConfig
from responses_api_agents.simple_agent.app import SimpleAgent


def test_the_older_name_is_the_same_class():
    assert CompCodingResourcesServer is CodeGenResourcesServer
    assert CompCodingResourcesServerConfig is CodeGenResourcesServerConfig


async def test_a_task_is_played_under_the_older_names():
    refs = {
        "resources_server": {"type": "resources_servers", "name": "comp_coding"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    row = generate_data.rows()[0]
    servers = {"comp_coding": CompCodingResourcesServer, "comp_coding_simple_agent": (SimpleAgent, refs)}
    model = scripted_model(*generate_data.solution(row))
    async with running(**servers, policy_model=model) as client:
        rollout = await get_response_json(await client.post("comp_coding_simple_agent", "/run", json=row))
    assert rollout["reward"] == 1.0
