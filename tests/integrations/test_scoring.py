# SPDX-License-Identifier: Apache-2.0
"""A text is scored by the verifier of its row; one that gets no reward is a failure, and no zero."""

import pytest

from nemo_gym.errors import RolloutFailure, UnknownServerError
from nemo_gym.integrations.live import LiveGymError
from nemo_gym.integrations.scoring import connect, score_reply
from nemo_gym.testing import agent_config, running
from resources_servers.string_match.app import StringMatchResourcesServer, StringMatchVerifyRequest
from responses_api_agents.simple_agent.app import SimpleAgent

QUIZ = {
    "responses_create_params": {"input": [{"role": "user", "content": "Say yes."}]},
    "expected_answer": "yes",
    "extraction_mode": "boxed",
    "agent_ref": {"type": "responses_api_agents", "name": "quiz_agent"},
}


@pytest.mark.parametrize(
    ("text", "reward"), [(r"\boxed{yes}", 1.0), (r"\boxed{no}", 0.0), (r"<think>\boxed{no}</think>\boxed{yes}", 1.0)]
)
async def test_a_text_is_scored_by_the_verifier_of_its_row(text, reward):
    servers = {"quiz": StringMatchResourcesServer, "quiz_agent": (SimpleAgent, agent_config("quiz"))}
    async with running(**servers) as client:
        assert await score_reply(client, QUIZ, text) == reward


async def test_a_verifier_without_a_reward_is_a_failure():
    class Undecided(StringMatchResourcesServer):
        async def verify(self, body: StringMatchVerifyRequest):
            return {**(await super().verify(body)).model_dump(), "_ng_failure_class": "judge_failed"}

    servers = {"quiz": Undecided, "quiz_agent": (SimpleAgent, agent_config("quiz"))}
    async with running(**servers) as client:
        with pytest.raises(RolloutFailure, match="judge_failed"):
            await score_reply(client, QUIZ, "yes")
        with pytest.raises(UnknownServerError):
            await score_reply(client, {**QUIZ, "agent_ref": {"name": "nobody"}}, "yes")


async def test_the_address_of_a_head_server_is_host_and_port():
    with pytest.raises(LiveGymError, match="host:port"):
        await connect("somewhere")
