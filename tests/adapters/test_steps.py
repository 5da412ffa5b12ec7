# SPDX-License-Identifier: Apache-2.0
"""Somebody's gym-like classes, played through the step bases by the real agent, each episode in its own process."""

import asyncio
import json
import os
from typing import Any

from nemo_gym.adapters import TextStepServer, ToolStepServer, derive_seed
from nemo_gym.testing import agent_config, build_server, reply, running, scripted_model, tool_call
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent
from tests.adapters.environments import make_counting, make_vault
from tests.adapters.step_sessions import Caller, row


class CountingServer(TextStepServer):
    """The ten lines that its author writes."""

    make_environment = staticmethod(make_counting)


async def play(world: Any, task: dict[str, Any], *replies: Any, max_steps: int = 10) -> dict[str, Any]:
    agent = (GymnasiumAgent, agent_config("world", max_steps=max_steps))
    async with running(world=world, policy_model=scripted_model(*replies), agent=agent) as client:
        response = await client.post("agent", "/run", json=task)
        text = await response.text()
        assert response.ok, text
        return json.loads(text)


async def test_an_episode_ends_when_the_environment_does_and_keeps_the_reward_of_every_step():
    played = await play(CountingServer, row(goal=6), "1", "<think>four, or five?</think>5")
    assert (played["reward"], played["step_rewards"], played["steps"]) == (6.0, [1.0, 5.0], 2)
    assert (played["terminated"], played["truncated"], played["info"]) == (True, False, {"sum": 6})
    first = played["responses_create_params"]["input"]
    assert [message["content"] for message in first] == ["Count.", "Reach 6."]
    assert [item["content"] for item in played["response"]["output"] if item.get("role") == "user"] == ["You have 1."]


async def test_an_episode_with_too_many_steps_is_truncated_and_keeps_what_it_has():
    world = build_server(CountingServer, max_steps=2)
    played = await play(world, row(goal=100), "1", "2")
    assert (played["reward"], played["terminated"], played["truncated"]) == (3.0, False, True)


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_equal_seeds_begin_alike_whatever_else_is_played():
    async with running(world=CountingServer) as client:
        begun = [await Caller(client, row(goal=9, seed=seed)).reset() for seed in (1, 2, 1)]
    drawn = [each["info"]["drawn"] for each in begun]
    assert drawn[0] == drawn[2] != drawn[1]
    assert [each["info"]["seed"] for each in begun] == [1, 2, 1]


def test_a_task_without_a_seed_gets_one_that_follows_from_its_place():
    task = {"goal": 3, "_ng_task_index": 0, "_ng_rollout_index": 0}
    assert derive_seed(task) == derive_seed({**task, "_ng_attempt_index": 2, "agent_ref": {"name": "a"}})
    others = [{**task, "_ng_rollout_index": 1}, {**task, "_ng_task_index": 1}, {**task, "goal": 4}]
    assert len({derive_seed(each) for each in (task, *others)}) == 4


async def test_an_episode_has_a_process_to_itself_which_the_next_one_takes_over():
    async with running(world=CountingServer) as client:
        one, other = Caller(client, row(goal=9)), Caller(client, row(goal=9))
        first, second = (await one.reset())["info"]["pid"], (await other.reset())["info"]["pid"]
        assert len({first, second, os.getpid()}) == 3
        assert (await (await one.post("/close")).json()) == {"closed": True}
        assert (await one.reset())["info"]["pid"] == first


async def test_more_episodes_than_there_may_be_wait_for_their_turn():
    async with running(world=(CountingServer, {"max_sessions": 1})) as client:
        one, other = Caller(client, row(goal=9)), Caller(client, row(goal=9))
        await one.reset()
        waiting = asyncio.create_task(other.reset())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await one.step("9")
        assert (await waiting)["observation"] == "Reach 9."


async def test_an_episode_that_is_left_idle_gives_its_process_to_others():
    async with running(world=(CountingServer, {"max_sessions": 1, "idle_timeout_s": 0.2})) as client:
        forgotten = Caller(client, row(goal=9))
        await forgotten.reset()
        assert (await Caller(client, row(goal=9)).reset())["observation"] == "Reach 9."
        refused = await forgotten.step("1")
        assert refused.status == 400
        assert "no episode is running" in await refused.text()


class InPlace:
    """A place for an episode that is no process."""

    def __init__(self) -> None:
        self.steps, self.tools, self._environment = 0, [], None

    async def reset(self, task: dict[str, Any], seed: int, timeout_s: float) -> dict[str, Any]:
        self._environment = make_counting(task)
        observation, info = self._environment.reset(seed)
        return {"observation": observation, "info": info, "tools": None}

    async def step(self, action: Any, timeout_s: float) -> dict[str, Any]:
        self.steps += 1
        names = ("observation", "reward", "terminated", "truncated", "info")
        return dict(zip(names, self._environment.step(*action), strict=True))

    async def end(self) -> None:
        self._environment = None


class ChoosyServer(CountingServer):
    """Plays some tasks elsewhere."""

    async def open_episode(self, task: dict[str, Any]) -> Any:
        return InPlace() if task["goal"] < 10 else await super().open_episode(task)


async def test_a_server_may_choose_where_the_episode_of_a_task_is_played():
    async with running(world=(ChoosyServer, {"max_steps": 2})) as client:
        here, elsewhere = Caller(client, row(goal=9)), Caller(client, row(goal=19))
        assert (await here.reset())["info"]["pid"] == os.getpid()
        assert (await elsewhere.reset())["info"]["pid"] != os.getpid()
        steps = [await (await each.step("1")).json() for each in (here, elsewhere, here, elsewhere)]
        assert [step["truncated"] for step in steps] == [False, False, True, True]


# --- tools ------------------------------------------------------------------------------------------------------------


class VaultServer(ToolStepServer):
    """An environment with a tool."""

    make_environment = staticmethod(make_vault)


async def test_tools_of_an_episode_reach_the_model_and_their_outputs_too():
    model = scripted_model(
        "Hm.",
        reply(tool_call("dial", {"number": 1}, call_id="a"), tool_call("dial", "{no", call_id="b")),
        reply(tool_call("door", call_id="c")),
        ("dial", {"number": 7}),
    )
    agent = (GymnasiumAgent, agent_config("world"))
    async with running(world=VaultServer, policy_model=model, agent=agent) as client:
        played = await (await client.post("agent", "/run", json=row())).json()
    assert [tool["name"] for tool in model.requests[0].tools] == ["dial"]
    assert [item.role for item in model.requests[0].input] == ["user", "system", "user"]
    outputs = {item["call_id"]: item["output"] for item in played["response"]["output"] if "output" in item}
    assert outputs["a"] == "-"
    assert "Invalid tool call arguments" in outputs["b"]
    assert "Unknown tool 'door'. Available tools: dial" in outputs["c"]
    assert (played["reward"], played["step_rewards"], played["terminated"]) == (1.0, [0.0, 0.0, 0.0, 1.0], True)


async def test_the_order_of_a_set_is_the_same_in_every_run(monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    hashes = []
    for _ in range(2):
        async with running(world=CountingServer) as client:
            hashes.append((await Caller(client, row(goal=9)).reset())["info"]["hash"])
    assert hashes[0] == hashes[1]


class StrictVaultServer(VaultServer):
    """An environment that has its own opinion of calls that make no sense."""

    def find_mistake(self, call, known):
        return None


async def test_an_environment_may_be_told_of_calls_that_make_no_sense():
    wrong = reply(tool_call("door", {"number": 7}, call_id="a"), tool_call("dial", {"number": 1}, call_id="b"))
    played = await play(StrictVaultServer, row(), wrong)
    outputs = {item["call_id"]: item["output"] for item in played["response"]["output"] if "output" in item}
    assert outputs == {"a": "click", "b": "-"}
    assert (played["reward"], played["terminated"]) == (1.0, True)
