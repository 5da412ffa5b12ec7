# SPDX-License-Identifier: Apache-2.0
"""An answer that stands in the thinking alone is none: no built-in environment that reads text rewards it."""

import importlib
import inspect
import json
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym import PARENT_DIR
from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import reply, running, scripted_model

SERVERS = PARENT_DIR / "resources_servers"
READ_TEXT = (
    "calendar",
    "code_gen",
    "equivalence_llm_judge",
    "first_steps",
    "instruction_following",
    "math_with_code",
    "math_with_judge",
    "mcqa",
    "reasoning_gym",
    "string_match",
    "structured_outputs",
)
READ_TOOL_CALLS = {
    "aviary",
    "example_mcp_weather",
    "example_multi_step",
    "example_session_state_mgmt",
    "example_single_tool_call",
    "example_tool_call_multireward",
    "math_advanced_calculations",
    "openenv",
    "workplace_assistant",
    "workspace_tasks",
    "xlam_fc",
}
# What is said there is a step in an environment, most of them those of other systems with their own rules.
PLAY_STEPS = {"blackjack", "gem_gym", "gymnasium_text", "skyrl_gym", "textarena"}


def test_every_environment_that_generates_data_is_here():
    found = {path.parent.name for path in SERVERS.glob("*/generate_data.py")}
    assert found == {*READ_TEXT, *READ_TOOL_CALLS, *PLAY_STEPS}


@pytest.mark.parametrize("thought", ["<think>{}</think>", "<think>{}"])
@pytest.mark.parametrize("name", READ_TEXT)
async def test_an_answer_in_the_thinking_alone_does_not_get_the_reward_of_the_answer(name, thought):
    row = json.loads((SERVERS / name / "data/example.jsonl").read_text().splitlines()[0])
    gold = importlib.import_module(f"resources_servers.{name}.generate_data").solution(row)[-1]
    # A judge that likes everything, so that only what it is not shown is worth nothing.
    judge = scripted_model(*["[[A=B]]"] * 4)
    async with running(environment=build(name), policy_model=judge) as client:

        async def score(said: str) -> float:
            body = {**row, "response": reply(said).model_dump()}
            answer = await client.post("environment", "/verify", json=body)
            assert answer.status == 200, await answer.text()
            return (await get_response_json(answer))["reward"]

        assert await score(gold) > 0
        assert await score(thought.format(gold)) < await score(gold)


def build(name: str) -> Any:
    module = importlib.import_module(f"resources_servers.{name}.app")
    (server,) = (
        one
        for one in vars(module).values()
        if inspect.isclass(one) and issubclass(one, SimpleResourcesServer) and one.__module__ == module.__name__
    )
    blocks: Any = OmegaConf.to_container(OmegaConf.load(SERVERS / name / f"configs/{name}.yaml"))
    (fields,) = (block["resources_servers"][name] for block in blocks.values() if "resources_servers" in block)
    return server, fields
