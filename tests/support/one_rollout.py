# SPDX-License-Identifier: Apache-2.0
"""One rollout, played as a run plays it, against servers of this process."""

from typing import Any

from nemo_gym._rollouts.outcomes import Outcome
from nemo_gym._rollouts.play import Player, RetryRules
from nemo_gym.testing import running
from responses_api_agents.simple_agent.app import SimpleAgent


async def play_rollout(
    world: Any,
    model: Any,
    *,
    agent: type[SimpleAgent] = SimpleAgent,
    timeout_s: float | None = None,
    retries: RetryRules | None = None,
) -> Outcome:
    """Play one task with `model` in the environment `world`; both as `nemo_gym.testing.running` takes them."""
    refs = {
        "resources_server": {"name": "world", "type": "resources_servers"},
        "model_server": {"name": "policy_model", "type": "responses_api_models"},
    }
    async with running(world=world, policy_model=model, agent=(agent, refs)) as client:
        player = Player(
            lambda name, row: client.post(name, "/run", json=row),
            timeout_s=timeout_s,
            retries=retries,
        )
        return await player.play({"agent_ref": {"name": "agent"}, "responses_create_params": {"input": "hi"}})
