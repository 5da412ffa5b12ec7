# SPDX-License-Identifier: Apache-2.0
"""Write your own agent: this one asks the model three times and returns the majority answer.

    python examples/own_agent.py

It runs in the environment `string_match` with a scripted model, all in this process. An agent overrides `responses`,
the loop; `EnvironmentAgent`, the base class of `simple_agent`, seeds the session and gets the reward.
"""

import asyncio
from collections import Counter

from fastapi import Request

from nemo_gym import grading
from nemo_gym.base_responses_api_agent import Body
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status
from nemo_gym.testing import agent_config, running, scripted_model
from resources_servers.string_match.app import StringMatchResourcesServer
from responses_api_agents.simple_agent.app import EnvironmentAgent, ModelAgentConfig


class VotingAgentConfig(ModelAgentConfig):
    """Config of the agent: the environment, the model, and how many times to ask."""

    votes: int = 3


class VotingAgent(EnvironmentAgent):
    """Asks several times at once; the most common answer wins, and the first one in a tie."""

    config: VotingAgentConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """Return the first reply with the most common text."""
        replies = await asyncio.gather(*(self._ask(body) for _ in range(self.config.votes)))
        texts = [grading.assistant_text(reply).strip() for reply in replies]
        winner, _ = Counter(texts).most_common(1)[0]
        return replies[texts.index(winner)]

    async def _ask(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        reply = await self.server_client.post(self.config.model_server.name, "/v1/responses", json=body)
        await raise_for_status(reply)
        return NeMoGymResponse.model_validate(await get_response_json(reply))


async def main() -> None:
    """Run one task in which two of three replies are right."""
    model = scripted_model("Oslo", "Bergen", "Oslo")
    question = {"input": "What is the capital of Norway? Answer with one word."}
    task = {"responses_create_params": question, "expected_answer": "Oslo", "extraction_mode": "full_response"}
    agent = (VotingAgent, agent_config("string_match"))
    async with running(string_match=StringMatchResourcesServer, agent=agent, policy_model=model) as client:
        reply = await client.post("agent", "/run", json=task)
        await raise_for_status(reply)
        result = await get_response_json(reply)
    print("answer:", grading.assistant_text(NeMoGymResponse.model_validate(result["response"])))
    print("reward:", result["reward"])


if __name__ == "__main__":
    asyncio.run(main())
