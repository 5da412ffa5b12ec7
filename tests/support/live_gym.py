# SPDX-License-Identifier: Apache-2.0
"""Environments in this process for trainers to play in, and a script that solves a task of several tool calls."""

import asyncio
import json
from contextlib import asynccontextmanager

from nemo_gym import PARENT_DIR
from nemo_gym.integrations.live import LiveGym
from nemo_gym.testing import agent_config, running
from resources_servers.example_multi_step.app import ExampleMultiStepResourcesServer
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.token_engine_model.app import TokenEngineModel
from tests.support.token_engines import PairTokenizer, ScriptedEngine, call

CONFIG = "resources_servers/example_multi_step/configs/example_multi_step.yaml"
AGENT = "example_multi_step_simple_agent"
CAPTURE = {"token_id_capture": {"enabled": True, "all_agents": True, "rebuild_response": False}}


@asynccontextmanager
async def open_gym(environment=ExampleMultiStepResourcesServer, **agent):
    """The servers that a trainer would start, without ports."""
    servers = {
        "policy_model": TokenEngineModel,
        "synonyms": environment,
        AGENT: (SimpleAgent, agent_config("synonyms", **agent)),
    }
    async with running(global_config=CAPTURE, **servers) as client:
        stop = asyncio.Event()
        gym = LiveGym(client, asyncio.create_task(stop.wait()), stop)
        try:
            yield gym
        finally:
            await gym.close()


def read_task():
    """A row of the environment, with a short prompt."""
    path = PARENT_DIR / "resources_servers/example_multi_step/data/example.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    params = {**row["responses_create_params"], "input": [{"role": "user", "content": "Look up the synonyms."}]}
    agent = {"type": "responses_api_agents", "name": AGENT}
    return {**row, "responses_create_params": params, "agent_ref": agent}


def solve(row):
    """What a model says to solve the task, turn by turn: with reasoning, in its own spelling."""
    synonyms = row["expected_synonyms"]

    def reply(prompt, number):
        if number < len(synonyms):
            return f"<think>now {number}</think>  Next:" + call("get_synonym_value", synonym=synonyms[number])
        if number == len(synonyms):
            return call("extract_synonym_values", synonym_values=row["expected_synonym_values"])
        return "Done."

    return reply


def make_engine(row, reply=None):
    return ScriptedEngine(PairTokenizer(), reply or solve(row))


def check_sequence(engine, prompt_ids, response_ids, mask, log_probs):
    """The response is what the engine wrote and, between, what it was given: token by token, in order."""
    assert len(response_ids) == len(mask) == len(log_probs)
    assert set(mask) <= {0, 1}
    sequence = [*prompt_ids, *response_ids]
    at = len(prompt_ids)
    for given, written, likely in engine.calls:
        assert sequence[: len(given)] == given
        between = mask[at - len(prompt_ids) : len(given) - len(prompt_ids)]
        assert not any(between)
        at = len(given) + len(written)
        part = slice(len(given) - len(prompt_ids), at - len(prompt_ids))
        assert response_ids[part] == written
        assert log_probs[part] == likely
        assert all(mask[part])
    assert at == len(sequence)
    assert all(value == 0.0 for value, by_model in zip(log_probs, mask, strict=True) if not by_model)


def check_branch(engine, branch):
    """The same, of a branch."""
    check_sequence(engine, branch.prompt_ids, branch.completion_ids, branch.mask, branch.log_probs)
