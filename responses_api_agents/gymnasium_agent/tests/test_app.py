# SPDX-License-Identifier: Apache-2.0
"""Episodes of a real environment in process, played by a scripted model."""

from typing import Any

import pytest
from aiohttp import ServerDisconnectedError
from pydantic import PrivateAttr, ValidationError

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseUsage
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import ScriptedModel, agent_config, build_server, reply, running, scripted_model, tool_call
from resources_servers.gymnasium import GymnasiumServer, extract_text, tool_output
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent

REFS = agent_config("world")


class Climb(GymnasiumServer):
    """Each `up` is a step worth one; `height` steps are the top. A call of `look` is answered as a tool."""

    config: BaseResourcesServerConfig
    _closed: list[str] = PrivateAttr(default_factory=list)
    _steps_taken: int = PrivateAttr(default=0)

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str | None, dict[str, Any]]:
        self.session_state[session_id] = 0
        return metadata.get("first", "You are at 0."), {}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str
    ) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        self._steps_taken += 1
        climbed = extract_text(action) == "up"
        self.session_state[session_id] += climbed
        height = self.session_state[session_id]
        seen = [tool_output(call.call_id, {"height": height}) for call in grading.function_calls(action)]
        info = {"height": height, **({"tool_outputs": seen} if seen else {})}
        return (None if seen else f"You are at {height}."), float(climbed), height == metadata["height"], False, info

    async def close_session(self, session_id: str) -> None:
        self._closed.append(session_id)
        await super().close_session(session_id)


def row(height: int = 2, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "Climb."}, "height": height, **fields}


async def played(
    task: dict[str, Any], *replies: NeMoGymResponse | str, world: Climb | None = None, **config: Any
) -> tuple[dict[str, Any], ScriptedModel]:
    model = scripted_model(*replies)
    async with running(world=world or Climb, policy_model=model, agent=(GymnasiumAgent, {**REFS, **config})) as client:
        response = await client.post("agent", "/run", json=task)
        assert response.ok, await response.text()
        return await response.json(), model


def texts(items: list[Any]) -> list[str]:
    return [item.content if isinstance(item.content, str) else item.content[0].text for item in items]


async def test_an_observed_episode_tells_its_model_calls(tmp_path):
    settings = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
    servers: dict[str, Any] = {
        "world": Climb,
        "policy_model": scripted_model("up", "up"),
        "agent": (GymnasiumAgent, REFS),
    }
    async with running(global_config=settings, **servers) as client:
        response = await client.post("agent", "/run", json=row(_ng_task_index=1, _ng_rollout_index=0))
        result = await response.json()
    (invocation,) = result["ng_agent_observations"]["records"]
    assert (invocation["invocation_id"], len(invocation["model_calls"])) == ("1-0", 2)
    assert result["ng_trajectory"]["turns"][0]["step_count"] == 2


async def test_rewards_are_summed_until_the_environment_ends():
    result, model = await played(row(height=2), "up", "up")
    assert (result["reward"], result["terminated"], result["truncated"]) == (2.0, True, False)
    assert result["info"] == {"height": 2}
    assert len(model.requests) == 2


async def test_observations_become_user_messages():
    result, model = await played(row(height=2), "up", "up")
    assert texts(model.requests[0].input) == ["Climb.", "You are at 0."]
    assert texts(model.requests[1].input) == ["Climb.", "You are at 0.", "up", "You are at 1."]
    assert [item["content"] for item in result["responses_create_params"]["input"]] == ["Climb.", "You are at 0."]
    assert [item["role"] for item in result["response"]["output"]] == ["assistant", "user", "assistant"]


async def test_an_environment_without_a_first_observation_adds_nothing():
    _, model = await played(row(height=1, first=None), "up")
    assert texts(model.requests[0].input) == ["Climb."]


async def test_tool_outputs_answer_the_calls_of_the_model():
    result, model = await played(row(height=1), reply(tool_call("look", call_id="c1")), "up")
    answered = model.requests[1].input[-1]
    assert (answered.type, answered.call_id, answered.output) == ("function_call_output", "c1", '{"height":0}')
    assert [item["type"] for item in result["response"]["output"]] == [
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_an_episode_that_is_not_over_at_max_steps_is_truncated():
    result, model = await played(row(height=9), "up", "up", "up", max_steps=3)
    assert (result["reward"], result["terminated"], result["truncated"]) == (3.0, False, True)
    assert result["_ng_cut_off"] == "max_steps"
    assert len(model.requests) == 3
    assert result["response"]["output"][-1]["role"] == "assistant"


async def test_an_episode_that_ends_in_the_last_step_is_not_cut_off():
    result, _ = await played(row(height=2), "up", "up", max_steps=2)
    assert "_ng_cut_off" not in result


async def test_an_incomplete_reply_is_scored_and_ends_the_episode():
    cut = reply("up", incomplete_details={"reason": "max_output_tokens"})
    result, _ = await played(row(height=9), cut)
    assert (result["reward"], result["truncated"]) == (1.0, True)


async def test_the_usage_of_all_turns_is_summed():
    usage = NeMoGymResponseUsage(input_tokens=5, output_tokens=1, total_tokens=6)
    result, _ = await played(row(height=2), reply("up", usage=usage), reply("up", usage=usage))
    assert result["response"]["usage"]["total_tokens"] == 12


async def test_the_session_is_closed_at_the_end():
    world = build_server(Climb, name="world")
    await played(row(height=1), "up", world=world)
    assert len(world._closed) == 1
    assert len(world.session_state) == 0


async def test_the_session_is_closed_when_the_model_fails():
    world = build_server(Climb, name="world")
    async with running(world=world, policy_model=scripted_model("up"), agent=(GymnasiumAgent, REFS)) as client:
        response = await client.post("agent", "/run", json=row(height=2))
    assert response.status == 500
    assert len(world._closed) == 1


class LossyClient(ServerClient):
    """Loses the first answer of every path in `lossy`, after the server has acted."""

    lossy: set[str]

    async def post(self, server_name: str, url_path: str, **kwargs: Any) -> Any:
        response = await super().post(server_name, url_path, **kwargs)
        if url_path in self.lossy:
            self.lossy.remove(url_path)
            raise ServerDisconnectedError
        return response


async def played_over_a_bad_line(world: Climb, lossy: set[str], *replies: str) -> Any:
    agent = build_server(GymnasiumAgent, name="agent", **REFS)
    async with running(world=world, policy_model=scripted_model(*replies), agent=agent) as client:
        agent.server_client = LossyClient(
            head_server_config=client.head_server_config, global_config_dict=client.global_config_dict, lossy=lossy
        )
        return await client.post("agent", "/run", json=row(height=2))


async def test_a_step_whose_answer_was_lost_is_asked_for_again_and_not_taken_twice():
    world = build_server(Climb, name="world")
    response = await played_over_a_bad_line(world, {"/step"}, "up", "up")
    assert (await response.json())["reward"] == 2.0
    assert world._steps_taken == 2


async def test_a_step_is_not_repeated_where_the_environment_cannot_tell():
    class Forgetful(Climb):
        async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str | None, dict[str, Any]]:
            observation, _ = await super().reset(metadata, session_id)
            return observation, {"supports_step_idempotency": False}

    world = build_server(Forgetful, name="world")
    response = await played_over_a_bad_line(world, {"/step"}, "up", "up")
    assert response.status == 500
    assert world._steps_taken == 1


async def test_a_close_that_fails_does_not_lose_the_rollout():
    world = build_server(Climb, name="world")
    response = await played_over_a_bad_line(world, {"/close"}, "up", "up")
    assert (await response.json())["reward"] == 2.0


async def test_responses_is_one_turn_of_the_model():
    async with running(world=Climb, policy_model=scripted_model("up"), agent=(GymnasiumAgent, REFS)) as client:
        answer = await (await client.post("agent", "/v1/responses", json={"input": "Climb."})).json()
    assert answer["output"][0]["content"][0]["text"] == "up"


def test_max_steps_must_allow_one_step():
    with pytest.raises(ValidationError, match="max_steps"):
        build_server(GymnasiumAgent, max_steps=0, **REFS)
