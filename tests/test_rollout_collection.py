# SPDX-License-Identifier: Apache-2.0
"""Rollouts for programs: one answer for every example, whatever happens to it."""

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fastapi import Request

from nemo_gym import rollout_collection
from nemo_gym._rollouts.outcomes import key_of
from nemo_gym._rollouts.resume import ResumeError
from nemo_gym._rollouts.rollout_calls import metrics_from_servers
from nemo_gym._transport.failures import Failure
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.errors import ConfigError, GymError
from nemo_gym.rollout_collection import (
    FailedRollout,
    RolloutCollectionConfig,
    RolloutCollectionHelper,
    _get_max_rollout_attempts,
    loads_jsonl_line,
)
from nemo_gym.testing import running, scripted_model
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentRunRequest

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
    one_by_one = asyncio.Semaphore(1)
    running_examples = helper.run_examples(rows("a", "b", "c"), semaphore=one_by_one, route_failures_to_sidecar=True)
    played = [await one for one in running_examples]
    outcomes = {row["_ng_task_index"]: result for row, result in played}
    assert sorted(outcomes) == [0, 1, 2]
    scored = [result for result in outcomes.values() if not isinstance(result, FailedRollout)]
    failed = [result for result in outcomes.values() if isinstance(result, FailedRollout)]
    assert [result["reward"] for result in scored] == [1.0]
    assert [result.failure.kind for result in failed] == ["verifier", "verifier"]
    assert all("reward" not in result or result["reward"] is None for result in failed)
    assert pickle.loads(pickle.dumps(failed[0])).failure == failed[0].failure


async def test_a_failed_rollout_raises_the_reply_of_its_agent_and_the_cause(helper):
    scored, crashed, unscored = helper.run_examples(rows("a", "b", "c"), semaphore=asyncio.Semaphore(1))
    _, result = await scored
    assert result["reward"] == 1.0
    with pytest.raises(aiohttp.ClientResponseError) as raised:
        await crashed
    assert raised.value.status == 500
    assert b"a bug in the verifier" in raised.value.response_content
    assert raised.value.__cause__.kind == "verifier"
    with pytest.raises(aiohttp.ClientResponseError, match="`reward` is null") as raised:
        await unscored
    assert raised.value.status == 500
    assert pickle.loads(pickle.dumps(raised.value)).status == 500


class Unlucky(SimpleAgent):
    """An agent that cannot say how good a rollout was, and says so; the trainer is not to learn from it."""

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> dict[str, Any]:
        played = await super().run(request, body)
        return {**played.model_dump(), "_ng_failure_class": "sandbox_lost", "mask_sample": True}


async def test_a_masked_sample_is_a_result_also_where_the_agent_calls_it_failed(monkeypatch):
    async with running(world=World, agent=(Unlucky, AGENT[1]), policy_model=scripted_model("fine")) as client:
        monkeypatch.setattr(rollout_collection, "setup_server_client", lambda _=None: client)
        (one,) = RolloutCollectionHelper().run_examples(rows("a"))
        _, result = await one
    assert (result["mask_sample"], result["_ng_failure_class"]) == (True, "sandbox_lost")
    assert result["response"]["output"]


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


def collection(folder: Path, *prompts: str, **settings: Any) -> RolloutCollectionConfig:
    """A collection of one task per prompt into `folder`."""
    source = folder / "in.jsonl"
    source.write_text("".join(json.dumps({"responses_create_params": {"input": text}}) + "\n" for text in prompts))
    paths = {"input_jsonl_fpath": str(source), "output_jsonl_fpath": str(folder / "out.jsonl")}
    return RolloutCollectionConfig(**{"agent_name": "agent", "num_samples_in_parallel": 1, **paths, **settings})


async def test_a_collection_writes_the_metrics_of_the_agents_server(helper, tmp_path):
    await helper.run_from_config(collection(tmp_path, "a", "b"))
    (metrics,) = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    assert metrics["agent_ref"] == {"name": "agent"}
    assert metrics["key_metrics"]["mean/reward"] == 1.0
    assert metrics["confidence"]["mean/reward"]["n_requested"] == 2
    assert [group["_ng_task_index"] for group in metrics["group_level_metrics"]] == [0]


async def test_without_aggregation_there_are_only_rollouts(helper, tmp_path):
    await helper.run_from_config(collection(tmp_path, "a", disable_aggregation=True))
    assert not (tmp_path / "out_aggregate_metrics.json").exists()


async def test_a_resumed_collection_plays_what_is_missing_and_only_that(monkeypatch, tmp_path):
    model = scripted_model("crash", "fine", "fine")
    async with running(world=World, agent=AGENT, policy_model=model) as client:
        monkeypatch.setattr(rollout_collection, "setup_server_client", lambda _=None: client)
        helper = RolloutCollectionHelper()
        assert len(await helper.run_from_config(collection(tmp_path, "a", "b"))) == 1
        left, done, results = helper._load_from_cache(collection(tmp_path, "a", "b"))
        assert ([key_of(row) for row in left], left[0]["_ng_attempt_index"]) == ([(0, 0)], 1)
        assert [key_of(row) for row in done] == [key_of(result) for result in results] == [(1, 0)]
        resumed = await helper.run_from_config(collection(tmp_path, "a", "b", resume_from_cache=True))
        assert [key_of(result) for result in resumed] == [(0, 0), (1, 0)]
        assert len(model.requests) == 3
        with pytest.raises(ResumeError, match="num_repeats"):
            await helper.run_from_config(collection(tmp_path, "a", "b", resume_from_cache=True, num_repeats=2))


class Replay(RolloutCollectionHelper):
    """A helper that answers by itself: it scores `a`, fails `b` and leaves `c` without a reward."""

    def run_examples(self, examples, head_server_config=None, semaphore=None, **options):
        async def answer(row):
            prompt = row["responses_create_params"]["input"]
            if prompt == "b":
                return row, FailedRollout({"why": "lost"}, Failure("sandbox", "replay", False, "lost"))
            return row, {"said": prompt, **({"reward": 0.25} if prompt == "a" else {})}

        assert semaphore is not None
        return [answer(row) for row in reversed(examples)]


async def test_a_subclass_that_overrides_run_examples_is_given_the_rows_and_its_results_are_recorded(helper, tmp_path):
    results = await Replay().run_from_config(collection(tmp_path, "a", "b", "c"))
    assert [(result["_ng_task_index"], result["said"]) for result in results] == [(0, "a"), (2, "c")]
    assert (results[0]["reward"], results[0]["agent_ref"]) == (0.25, {"name": "agent"})
    assert "reward" not in results[1]
    (failed,) = map(json.loads, (tmp_path / "out_failures.jsonl").read_text().splitlines())
    assert (failed["_ng_task_index"], failed["why"]) == (1, "lost")
    (metrics,) = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"]["mean/reward"] == 0.25


async def test_repeats_for_an_agent_that_no_row_uses_are_warned_of(helper, tmp_path):
    config = collection(tmp_path, "a", num_repeats={"_default": 1, "nobody": 2})
    with pytest.warns(UserWarning, match="'nobody', which no row uses"):
        await helper.run_from_config(config)
    with pytest.warns(UserWarning, match="'nobody', which no row uses"):
        helper._preprocess_rows_from_config(config)


def test_the_rows_of_a_collection_are_what_it_would_play(tmp_path):
    config = collection(tmp_path, "a", "b", num_repeats=2, responses_create_params={"temperature": 0.5})
    rows = RolloutCollectionHelper()._preprocess_rows_from_config(config)
    assert [key_of(row) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {row["responses_create_params"]["temperature"] for row in rows} == {0.5}
    assert {row["agent_ref"]["name"] for row in rows} == {"agent"}


async def test_metrics_of_given_results_are_written_beside_the_output(helper, tmp_path):
    results = [
        {**row, "reward": reward, "response": {}} for row, reward in zip(rows("a", "b"), (1.0, 0.0), strict=True)
    ]
    written = await helper._call_aggregate_metrics(results, rows("a", "b", "c"), tmp_path / "x.jsonl")
    assert written == tmp_path / "x_aggregate_metrics.json"
    (metrics,) = json.loads(written.read_text())
    assert metrics["key_metrics"]["mean/reward"] == 0.5
    assert metrics["confidence"]["mean/reward"]["n_requested"] == 3
    assert await helper._call_aggregate_metrics([], [], tmp_path / "y.jsonl") is None


async def test_an_agent_that_cannot_aggregate_leaves_it_to_us(monkeypatch, tmp_path, caplog):
    class Stubborn(SimpleAgent):
        async def aggregate_metrics(self, body=None):
            raise NotImplementedError("not today")

    async with running(world=World, agent=(Stubborn, AGENT[1]), policy_model=scripted_model()) as client:
        monkeypatch.setattr(rollout_collection, "setup_server_client", lambda _=None: client)
        result = {**rows("a")[0], "reward": 1.0}
        written = await RolloutCollectionHelper()._call_aggregate_metrics([result], rows("a"), tmp_path / "x.jsonl")
    assert json.loads(written.read_text())[0]["key_metrics"]["mean/reward"] == 1.0
    assert "aggregated here" in caplog.text


async def test_rollouts_of_an_agent_that_is_no_server_are_aggregated_without_asking(helper, caplog):
    ask = metrics_from_servers(helper.setup_server_client(), rollout_collection.LOG.warning)
    assert await ask("somebody_elses_agent", [{"reward": 1.0}]) is None
    assert caplog.text == ""


def test_the_number_of_attempts_comes_from_the_environment(monkeypatch):
    assert _get_max_rollout_attempts() == 3
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "5")
    assert _get_max_rollout_attempts() == 5


@pytest.mark.parametrize("given", ["", " ", "many", "0", "-1", "1.5", "²"])
def test_a_number_of_attempts_that_is_none_means_the_default(monkeypatch, given):
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", given)
    assert _get_max_rollout_attempts() == 3


def test_a_line_that_is_not_json_names_its_file_and_line():
    with pytest.raises(ConfigError, match=r"Malformed JSON in 'x\.jsonl' at line 7"):
        loads_jsonl_line(b"{", "x.jsonl", 7)


def test_the_materialized_inputs_lie_beside_the_output():
    config = RolloutCollectionConfig(input_jsonl_fpath="i", output_jsonl_fpath="a/b.jsonl")
    assert str(config.materialized_jsonl_fpath) == "a/b_materialized_inputs.jsonl"
