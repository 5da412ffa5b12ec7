# SPDX-License-Identifier: Apache-2.0
"""Rollouts for programs: one answer for every example, whatever happens to it."""

import asyncio
import json
import pickle

import pytest

from nemo_gym import rollout_collection
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.errors import GymError
from nemo_gym.rollout_collection import (
    FailedRollout,
    RolloutCollectionConfig,
    RolloutCollectionHelper,
    _get_max_rollout_attempts,
    loads_jsonl_line,
)
from nemo_gym.testing import running, scripted_model
from responses_api_agents.simple_agent.app import SimpleAgent

AGENT = (
    SimpleAgent,
    {
        "resources_server": {"type": "resources_servers", "name": "world"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    },
)


class World(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        if "crash" in body.response.output_text:
            raise ZeroDivisionError("a bug in the verifier")
        reward = float("nan") if "nan" in body.response.output_text else 1.0
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


def rows(*prompts: str) -> list[dict]:
    return [
        {
            "responses_create_params": {"input": prompt},
            "_ng_task_index": number,
            "_ng_rollout_index": 0,
            "agent_ref": {"name": "agent"},
        }
        for number, prompt in enumerate(prompts)
    ]


@pytest.fixture
async def helper(monkeypatch):
    """A helper whose servers run in this process; the model answers `fine`, `crash` and `nan`, in this order."""
    async with running(world=World, agent=AGENT, policy_model=scripted_model("fine", "crash", "nan")) as client:
        monkeypatch.setattr(rollout_collection, "setup_server_client", lambda _=None: client)
        yield RolloutCollectionHelper()


async def test_every_example_has_an_answer_and_failures_are_typed(helper):
    played = [await one for one in helper.run_examples(rows("a", "b", "c"), semaphore=asyncio.Semaphore(1))]
    outcomes = {row["_ng_task_index"]: result for row, result in played}
    assert sorted(outcomes) == [0, 1, 2]
    scored = [result for result in outcomes.values() if not isinstance(result, FailedRollout)]
    failed = [result for result in outcomes.values() if isinstance(result, FailedRollout)]
    assert [result["reward"] for result in scored] == [1.0]
    assert [result.failure.kind for result in failed] == ["verifier", "verifier"]
    assert all("reward" not in result or result["reward"] is None for result in failed)
    assert pickle.loads(pickle.dumps(failed[0])).failure == failed[0].failure


def test_an_example_without_an_agent_is_an_error_before_anything_is_played():
    with pytest.raises(GymError, match="agent_ref"):
        RolloutCollectionHelper().run_examples([{"responses_create_params": {"input": "x"}}])


async def test_a_collection_writes_its_files_and_returns_what_was_scored(helper, tmp_path):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps({"responses_create_params": {"input": text}}) for text in "ab") + "\n")
    results = await helper.run_from_config(
        RolloutCollectionConfig(
            agent_name="agent",
            input_jsonl_fpath=str(source),
            output_jsonl_fpath=str(output),
            num_samples_in_parallel=1,
        )
    )
    assert [result["reward"] for result in results] == [1.0]
    assert (tmp_path / "out_failures.jsonl").read_text().count("\n") == 1
    assert (tmp_path / "out_materialized_inputs.jsonl").read_text().count("\n") == 2


def test_the_number_of_attempts_comes_from_the_environment(monkeypatch):
    assert _get_max_rollout_attempts() == 3
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "5")
    assert _get_max_rollout_attempts() == 5
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "many")
    with pytest.raises(GymError, match="many"):
        _get_max_rollout_attempts()


def test_a_line_that_is_not_json_names_its_file_and_line():
    with pytest.raises(ValueError, match=r"x\.jsonl: line 7"):
        loads_jsonl_line(b"{", "x.jsonl", 7)


def test_the_materialized_inputs_lie_beside_the_output():
    config = RolloutCollectionConfig(input_jsonl_fpath="i", output_jsonl_fpath="a/b.jsonl")
    assert str(config.materialized_jsonl_fpath) == "a/b_materialized_inputs.jsonl"
