# SPDX-License-Identifier: Apache-2.0
"""The older name leads to the same environment."""

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import reply, running, scripted_model, tool_call
from resources_servers.math_advanced_calculations import generate_data
from resources_servers.math_advanced_calculations.app import (
    MathAdvancedCalculationsResourcesServer,
    MathAdvancedCalculationsResourcesServerConfig,
)
from resources_servers.multiverse_math_hard.app import (
    MultiverseMathHardResourcesServer,
    MultiverseMathHardResourcesServerConfig,
)
from responses_api_agents.simple_agent.app import SimpleAgent


def test_the_older_name_is_the_same_class():
    assert MultiverseMathHardResourcesServer is MathAdvancedCalculationsResourcesServer
    assert MultiverseMathHardResourcesServerConfig is MathAdvancedCalculationsResourcesServerConfig


async def test_a_task_is_played_under_the_older_names():
    refs = {
        "resources_server": {"type": "resources_servers", "name": "multiverse_math_hard"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    row = generate_data.rows()[0]
    replies = [turn if isinstance(turn, str) else reply(tool_call(*turn)) for turn in generate_data.solution(row)]
    servers = {
        "multiverse_math_hard": MultiverseMathHardResourcesServer,
        "multiverse_math_hard_simple_agent": (SimpleAgent, refs),
    }
    async with running(**servers, policy_model=scripted_model(*replies)) as client:
        rollout = await get_response_json(await client.post("multiverse_math_hard_simple_agent", "/run", json=row))
    assert rollout["reward"] == 1.0
