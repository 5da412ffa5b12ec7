# SPDX-License-Identifier: Apache-2.0
"""The older name leads to the same environment."""

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import running, scripted_model
from resources_servers.library_judge_math.app import LibraryJudgeMathResourcesServer
from resources_servers.math_with_judge import app as newer
from resources_servers.math_with_judge import generate_data
from responses_api_agents.simple_agent.app import SimpleAgent


def test_the_older_name_is_the_same_class():
    assert LibraryJudgeMathResourcesServer is newer.LibraryJudgeMathResourcesServer


async def test_a_task_is_played_under_the_older_names():
    refs = {
        "resources_server": {"type": "resources_servers", "name": "library_judge_math"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    row = generate_data.rows()[0]
    servers = {
        "library_judge_math": (LibraryJudgeMathResourcesServer, {"should_use_judge": False}),
        "library_judge_math_simple_agent": (SimpleAgent, refs),
    }
    async with running(**servers, policy_model=scripted_model(*generate_data.solution(row))) as client:
        rollout = await get_response_json(await client.post("library_judge_math_simple_agent", "/run", json=row))
    assert rollout["reward"] == 1.0
