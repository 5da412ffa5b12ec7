# SPDX-License-Identifier: Apache-2.0
"""What needs the library: run by `test_app.py`, with the Python of the server's own environment."""

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from responses_api_agents.verifiers_env.app import VerifiersEnv
from responses_api_agents.verifiers_env.catalog import list_environments, make_rows
from responses_api_agents.verifiers_env.environments import build_environment
from responses_api_agents.verifiers_env.generate_data import rows
from tests.support.served_run import ServedRun, serve_run

TASKSET = "responses_api_agents/verifiers_env/sample_tasksets/count_letters"
EPISODES = 50
AT_A_TIME = 4
BLOCK = {"model_server": {"type": "responses_api_models", "name": "policy_model"}, "max_rollouts": AT_A_TIME}


class CountingModel(SimpleResponsesAPIModel):
    """Counts letters, rightly or not: that depends on the question alone."""

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        asked = str(body.model_dump(mode="json")["messages"])
        letter, word = re.search(r"does (\w) occur in (\w+)\?", asked).groups()
        luck = int(hashlib.sha256(f"{letter}{word}".encode()).hexdigest(), 16) % 3
        said = (str(word.count(letter)), "99", "a few")[luck]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
        given = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        return NeMoGymChatCompletion.model_validate({**given, "usage": usage})

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        raise AssertionError("the harness speaks Chat Completions")


@pytest.fixture
async def run(monkeypatch):
    async with serve_run(monkeypatch, policy_model=CountingModel, agent=(VerifiersEnv, BLOCK)) as served:
        yield served


async def score_with_library_alone(run: ServedRun) -> list[float]:
    """Return the reward of every task, as the library's own evaluation plays it."""
    from verifiers.v1.clients import ModelContext
    from verifiers.v1.configs.client import EvalClientConfig

    environment = build_environment(TASKSET, {}, harness="null", runtime="subprocess")
    client = EvalClientConfig(base_url=f"{run.urls['policy_model']}/v1", api_key_var="NO_KEY")
    context, turns = ModelContext(model="policy_model", client=client), asyncio.Semaphore(AT_A_TIME)
    async with environment.serving():
        slots = [slot for task in environment.taskset.take(EPISODES) for slot in environment.slots(task)]
        episodes = await asyncio.gather(*(environment.run_slot(slot, context, turns) for slot in slots))
    assert all(episode.ok for episode in episodes)
    return [episode.traces[0].reward for episode in episodes]


async def play(run: ServedRun, row: dict[str, Any]) -> dict[str, Any]:
    answer = await run.client.post("agent", "/run", json=row)
    assert answer.status == 200, answer.headers.get("x-nemo-gym-failure")
    return await answer.json()


def row_of(taskset: str, task: int = 0, config: dict[str, Any] | None = None) -> dict[str, Any]:
    environment = {"id": taskset, "config": config or {}, "task": task}
    return {"responses_create_params": {"input": []}, "environment": environment}


async def fail(run: ServedRun, row: dict[str, Any]) -> str:
    answer = await run.client.post("agent", "/run", json=row)
    assert answer.status != 200
    return answer.headers["x-nemo-gym-failure"]


async def test_rewards_are_those_of_the_library(run):
    alone = await score_with_library_alone(run)
    played = await asyncio.gather(*(play(run, row_of(TASKSET, task)) for task in range(EPISODES)))
    assert [row["reward"] for row in played] == alone
    assert len(alone) == EPISODES
    assert {0.0, 0.1, 1.1} == set(alone)


async def test_a_row_holds_the_conversation_and_the_parts_of_the_reward(run):
    row = await play(run, make_rows(TASKSET, 1, 1, {})[0])
    assert [item["type"] for item in row["response"]["output"]] == ["message"]
    assert "How often" in str(row["responses_create_params"]["input"])
    assert sum(row["reward_components"].values()) == pytest.approx(row["reward"])
    assert set(row["reward_components"]) == {"right", "is_number"}
    assert (row["model_calls"], row["runner_metrics"]["num_turns"]) == (1, 1)
    assert row["response"]["usage"]["total_tokens"] == 10


def write_taskset(folder: Path, name: str, reward: str) -> str:
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(
        "import verifiers.v1 as vf\n"
        "__all__ = ['Own']\n"
        "class OwnTask(vf.Task[vf.TaskData]):\n"
        "    @vf.reward(weight=1.0)\n"
        f"    async def judged(self, trace: vf.Trace) -> float:\n        {reward}\n"
        "class Own(vf.Taskset[OwnTask, vf.TasksetConfig]):\n"
        "    def load(self):\n"
        "        yield OwnTask(vf.TaskData(prompt='How often does a occur in banana?'), self.config.task)\n"
    )
    return str(package)


async def test_a_reward_function_that_raises_is_a_failure_and_no_zero(run, tmp_path):
    failure = await fail(run, row_of(write_taskset(tmp_path, "raising_reward", "return {}['judge']")))
    assert '"kind": "verifier"' in failure
    assert "KeyError" in failure


async def test_a_reward_that_is_nan_is_a_failure(run, tmp_path):
    failure = await fail(run, row_of(write_taskset(tmp_path, "nan_reward", "return float('nan')")))
    assert '"kind": "verifier"' in failure


async def test_a_task_that_is_not_there_is_a_failure_with_a_hint(run):
    assert "hint: write the rows again" in await fail(run, row_of(TASKSET, 60))


async def test_a_taskset_that_is_not_installed_is_a_failure_that_names_others(run):
    failure = await fail(run, row_of("count_leters"))
    assert "is not installed" in failure
    assert "sample_tasksets/count_letters" in failure


def test_the_catalog_lists_the_samples_with_what_they_are():
    listed = {entry["id"].split("/")[-1]: entry["description"] for entry in list_environments()}
    assert listed["count_letters"] == "Count how often a letter occurs in a word."


def test_the_example_rows_are_what_the_generator_writes():
    stored = (Path(__file__).parents[1] / "data" / "example.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in stored] == rows()
