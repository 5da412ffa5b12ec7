# SPDX-License-Identifier: Apache-2.0
"""What the tests of all older names of environments do: `simple_weather`, `multineedle` and so on.

The test itself stands in the folder of each older name, where `gym env test NAME` and `pytest` look for it.
"""

import importlib
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import running, scripted_model
from responses_api_agents.simple_agent.app import SimpleAgent


async def play_example(older_name: str) -> dict[str, Any]:
    """Play the first example with the servers that the config of `older_name` defines; return the rollout.

    The class that the older name exports must be that of the environment which the config names.
    """
    app = importlib.import_module(f"resources_servers.{older_name}.app")
    config = Path(str(app.__file__)).parent / "configs" / f"{older_name}.yaml"
    blocks: Any = OmegaConf.to_container(OmegaConf.load(config))
    (environment, block), (agent, agent_block) = blocks.items()
    ((newer_name, fields),) = block["resources_servers"].items()
    server = getattr(app, "".join(word.title() for word in older_name.split("_")) + "ResourcesServer")
    assert server.__module__ == f"resources_servers.{newer_name}.app"

    generator = importlib.import_module(f"resources_servers.{newer_name}.generate_data")
    row = generator.rows()[0]
    agent_fields = agent_block["responses_api_agents"]["simple_agent"]
    agent_fields.pop("datasets")
    servers = {environment: (server, fields), agent: (SimpleAgent, agent_fields)}
    async with running(**servers, policy_model=scripted_model(*generator.solution(row))) as client:
        rollout: dict[str, Any] = await get_response_json(await client.post(agent, "/run", json=row))
    return rollout
