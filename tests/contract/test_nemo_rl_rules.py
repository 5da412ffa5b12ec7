# SPDX-License-Identifier: Apache-2.0
"""What NeMo RL asks of rollouts, kept in front of an engine that tokenizes histories badly on purpose.

Its rules: it plays rows through `run_examples`; every item of `response.output` with `generation_token_ids` has
`prompt_token_ids` and `generation_log_probs` too; all tokens so far are an exact prefix of the next `prompt_token_ids`.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from fastapi import Request

from nemo_gym import rollout_collection
from nemo_gym._util.jsonl_files import read_rows, write_rows
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.openai_utils import (
    TOKEN_METADATA_FIELDS,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.testing import agent_config, build_server, running
from nemo_gym.trajectories import TrainableRollout, read_trainable_rollouts
from resources_servers.example_single_tool_call.app import ExampleSingleToolCallResourcesServer
from resources_servers.gymnasium import GymnasiumServer
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.vllm_model.app import VLLMModel
from tests.support.drifting_engine import DriftingEngine
from tests.support.nemo_rl import make_example, walk_as_nemo_rl_does

EXPECTED = {
    ("plain", "faithful"): None,
    ("plain", "retokenizes"): "realigned",
    ("plain", "alternates"): "realigned",
    ("plain", "prefix"): "realigned",
    ("plain", "drops_reasoning"): "forked",
    ("plain", "reformats"): "forked",
    ("insisting", "prefix"): None,
    ("insisting", "retokenizes"): "realigned",
    ("thoughtless", "faithful"): None,
    ("thoughtless", "retokenizes"): "forked",
    ("editing", "faithful"): None,
    ("editing", "retokenizes"): "forked",
}
"""What becomes of the tokens of a rollout, by who plays it and by the habit of the engine; None: nothing at all."""
ROLLOUTS = 200


class EditingAgent(SimpleAgent):
    """An agent that shortens what the first tool said, once there are other answers to look at."""

    async def _ask(
        self, path: str, cookies: Any, notes: Any, body: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymResponse:
        outputs = [place for place, item in enumerate(body.input) if item.type == "function_call_output"]
        if len(outputs) > 1:
            items = list(body.input)
            items[outputs[0]] = items[outputs[0]].model_copy(update={"output": "[shortened]"})
            body = body.model_copy(update={"input": items})
        return await super()._ask(path, cookies, notes, body)


def servers(engine: DriftingEngine) -> dict[str, Any]:
    policy = {
        "base_url": [engine.base_url],
        "api_key": "none",
        "model": "policy",
        "return_token_id_information": True,
        "uses_reasoning_parser": True,
    }
    plain = agent_config("weather")
    other = {"type": "responses_api_models"}
    return {
        "weather": ExampleSingleToolCallResourcesServer,
        "policy_model": (VLLMModel, policy),
        "insisting_model": (VLLMModel, {**policy, "send_required_prefix_token_ids": True}),
        "thoughtless_model": (VLLMModel, {**policy, "uses_interleaved_reasoning": False}),
        "plain": (SimpleAgent, plain),
        "editing": (EditingAgent, plain),
        "insisting": (SimpleAgent, {**plain, "model_server": {**other, "name": "insisting_model"}}),
        "thoughtless": (SimpleAgent, {**plain, "model_server": {**other, "name": "thoughtless_model"}}),
    }


def make_examples(count: int) -> list[dict[str, Any]]:
    """Rows that meet every agent and every habit in turn."""
    rng = random.Random(5)
    kinds = [list(EXPECTED)[number % len(EXPECTED)] for number in range(count)]
    return [make_example(number, habit, agent, rng.randint(2, 4)) for number, (agent, habit) in enumerate(kinds)]


@pytest.fixture
async def engine():
    async with DriftingEngine() as engine:
        yield engine


HEAD = BaseServerConfig(host="127.0.0.1", port=1)


@pytest.fixture
def serve(engine, monkeypatch):
    """Runs the servers in this process, where `run_examples` finds them."""

    @asynccontextmanager
    async def run_servers(**more: Any) -> AsyncIterator[Any]:
        async with running(**{**servers(engine), **more}) as client:
            monkeypatch.setattr(rollout_collection, "setup_server_client", lambda head: client)
            yield client

    return run_servers


async def play(examples: list[dict[str, Any]], **settings: Any) -> dict[int, Any]:
    """Return results by row; for a rollout that failed, what was raised."""
    results = dict[int, Any]()
    for finished in RolloutCollectionHelper().run_examples(examples, head_server_config=HEAD, **settings):
        try:
            row, result = await finished
            results[row["_rowidx"]] = result
        except aiohttp.ClientResponseError as error:
            results[-1 - len(results)] = error
    return results


async def test_every_sequence_keeps_the_prefix_rule_or_is_marked_and_no_rollout_is_lost(engine, serve):
    examples = make_examples(ROLLOUTS)
    async with serve():
        results = await play(examples)
    assert sorted(results) == list(range(ROLLOUTS))
    for row in examples:
        result, calls = results[row["_rowidx"]], engine.calls[f"rollout-{row['_rowidx']}"]
        messages = walk_as_nemo_rl_does(result)
        assert result["reward"] == 1.0
        _, habit = list(EXPECTED)[row["_rowidx"] % len(EXPECTED)]
        expected, drift = EXPECTED[row["agent_ref"]["name"], habit], result.get("_ng_token_drift")
        assert (drift or {}).get("class") == expected, (row["agent_ref"], habit)
        if drift is None:
            carriers = [item for item in result["response"]["output"] if "prompt_token_ids" in item]
            assert [item["prompt_token_ids"] for item in carriers] == [call.prompt_ids for call in calls]
        if expected != "forked":
            assert [one["token_ids"] for one in messages[1::2]] == [call.generated_ids for call in calls]
        # The last answer is always trained on, in the tokens and with the log-probs of the engine.
        assert messages[-1]["generation_logprobs"] == calls[-1].log_probs
        # Whatever was set aside or put back, the record still knows what the engine read and wrote, turn by turn.
        rollout = TrainableRollout.from_row(result)
        assert [(turn.prompt_ids, turn.generated_ids, turn.log_probs) for turn in rollout.turns] == calls
        assert rollout.drift == (expected or "clean")
        assert rollout.is_valid


async def test_a_rollouts_file_holds_the_same(engine, serve, tmp_path):
    examples = make_examples(len(EXPECTED))
    write_rows(tmp_path / "input.jsonl", examples)
    paths = {"input_jsonl_fpath": str(tmp_path / "input.jsonl"), "output_jsonl_fpath": str(tmp_path / "out.jsonl")}
    async with serve():
        await RolloutCollectionHelper().run_from_config(RolloutCollectionConfig(**paths, disable_aggregation=True))
    rows = sorted(read_rows(tmp_path / "out.jsonl"), key=lambda row: row["_ng_task_index"])
    assert [(row.get("_ng_token_drift") or {}).get("class") for row in rows] == list(EXPECTED.values())
    assert all(walk_as_nemo_rl_does(row) for row in rows)
    read = {rollout.task_index: rollout for rollout in read_trainable_rollouts(tmp_path / "out.jsonl")}
    for number in range(len(EXPECTED)):
        turns = [(turn.prompt_ids, turn.generated_ids, turn.log_probs) for turn in read[number].turns]
        assert turns == engine.calls[f"rollout-{number}"]


class TextAgent(SimpleAgent):
    """An agent that knows only the texts of what the model said, as programs of others do."""

    async def _ask(self, *asked: Any) -> NeMoGymResponse:
        answer = (await super()._ask(*asked)).model_dump()
        plain = [{name: item[name] for name in item if name not in TOKEN_METADATA_FIELDS} for item in answer["output"]]
        return NeMoGymResponse.model_validate({**answer, "output": plain})


async def test_captured_tokens_of_an_agent_that_passes_on_only_text_are_handed_over_too(engine, serve, tmp_path):
    capture = {"token_id_capture": {"enabled": True, "all_agents": True, "dir": str(tmp_path)}}
    examples = [
        {**make_example(number, habit, "text"), "_ng_task_index": number, "_ng_rollout_index": 0}
        for number, habit in enumerate(["retokenizes", "drops_reasoning"])
    ]
    async with serve(global_config=capture, text=(TextAgent, agent_config("weather"))):
        results = await play(examples)
    for number, expected in enumerate(["realigned", "forked"]):
        result = results[number]
        assert walk_as_nemo_rl_does(result)
        assert (result["mask_sample"], result["_ng_token_drift"]["class"]) == (False, expected)
        rollout = TrainableRollout.from_row(result)
        turns = [(turn.prompt_ids, turn.generated_ids, turn.log_probs) for turn in rollout.turns]
        assert (rollout.drift, turns) == (expected, engine.calls[f"rollout-{number}"])


# --- edges ------------------------------------------------------------------------------------------------------------


async def test_without_the_text_of_ids_nobody_can_tell_so_it_is_a_fork_and_said_once(monkeypatch, caplog):
    async with DriftingEngine(detokenizes=False) as engine, running(**servers(engine)) as client:
        monkeypatch.setattr(rollout_collection, "setup_server_client", lambda head: client)
        results = await play([make_example(number, "retokenizes") for number in range(3)])
    for result in results.values():
        walk_as_nemo_rl_does(result)
        assert result["_ng_token_drift"]["class"] == "forked"
        assert result["_ng_token_drift"]["branches"] == 3
    assert caplog.text.count("such rollouts count as forked") == 1


async def test_a_handover_needs_none_of_the_threads_that_resolve_addresses(monkeypatch):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    # Every call opens a connection, whose address is resolved in the event loop's only thread.
    async with DriftingEngine(keeps_connections=False) as engine, running(**servers(engine)) as client:
        monkeypatch.setattr(rollout_collection, "setup_server_client", lambda head: client)
        results = await play([make_example(number, "retokenizes") for number in range(2)])
    assert [results[number]["_ng_token_drift"]["class"] for number in range(2)] == ["realigned"] * 2


async def test_lost_log_probs_are_a_failure_of_that_rollout_and_of_no_other(engine, serve):
    examples = [make_example(number, "loses_log_probs" if number == 1 else "faithful") for number in range(4)]
    async with serve():
        raised = await play(examples)
        routed = await play(examples, route_failures_to_sidecar=True)
    assert sorted(number for number in raised if number >= 0) == [0, 2, 3]
    (error,) = [result for number, result in raised.items() if number < 0]
    assert b"this reply cannot be trained on" in error.response_content
    failed = routed.pop(1)
    assert (failed["mask_sample"], "reward" in failed) == (True, False)
    assert "log-probs" in failed["_ng_failure"]["message"]
    assert all(len(walk_as_nemo_rl_does(result)) == 6 for result in routed.values())


class JudgedWeather(ExampleSingleToolCallResourcesServer):
    """A verifier whose judge is out of reach for one rollout: it then says so, and 0.0 for lack of a score."""

    async def verify(self, body: BaseVerifyRequest) -> dict[str, Any]:
        is_lost = "rollout-2" in str(body.responses_create_params.input)
        said = {"reward": 0.0, "_ng_failure_class": "judge_failed"} if is_lost else {"reward": 0.25}
        return {**body.model_dump(), **said}


async def test_a_failed_member_of_a_group_is_no_zero_in_its_baseline(engine, serve):
    group = [{**make_example(number, "faithful"), "_ng_task_index": 7} for number in range(4)]
    async with serve(weather=JudgedWeather):
        raised = await play(group)
        routed = await play(group, route_failures_to_sidecar=True)
    (error,) = [result for number, result in raised.items() if number < 0]
    assert error.__cause__.kind == "verifier"
    rollouts = [TrainableRollout.from_row(routed[number]) for number in range(4)]
    assert [rollout.reward for rollout in rollouts] == [0.25, 0.25, None, 0.25]
    assert [rollout.failure for rollout in rollouts] == [None, None, "verifier", None]
    assert {rollout.group for rollout in rollouts} == {("plain", 7)}
    failed = routed[2]
    assert (failed["mask_sample"], failed["_ng_failure_class"]) == (True, "judge_failed")
    assert "reward" not in failed


class CountingWeather(ExampleSingleToolCallResourcesServer):
    """Counts how often each session is scored."""

    scored: Counter[str] = Counter()

    async def verify(self, body: BaseVerifyRequest, request: Request) -> BaseVerifyResponse:  # type: ignore[override]
        self.scored[request.session[SESSION_ID_KEY]] += 1
        return await super().verify(body)


async def test_a_trainer_that_dies_leaves_nothing_running_and_may_come_back(engine, serve):
    examples = [make_example(number, "retokenizes") for number in range(8)]
    weather = build_server(CountingWeather)
    async with serve(weather=weather):
        engine.may_answer.clear()
        dying = asyncio.create_task(play(examples))
        await engine.wait_until_asked(len(examples))
        dying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dying
        del dying
        await engine.wait_until_asked(0)
        engine.may_answer.set()
        results = await play(examples)
    assert sorted(results) == list(range(8))
    assert all(walk_as_nemo_rl_does(result) for result in results.values())
    assert sorted(weather.scored.values()) == [1] * 8


class Episodes(GymnasiumServer):
    """An environment of one step that holds something for every session, and must be told to let go of it."""

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str | None, dict[str, Any]]:
        self.session_state[session_id] = "held"
        return None, {}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str
    ) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        return None, 1.0, True, False, {}


async def test_the_sessions_of_a_trainer_that_dies_are_closed(engine, serve):
    examples = [make_example(number, "faithful", "player") for number in range(4)]
    episodes = build_server(Episodes)
    async with serve(episodes=episodes, player=(GymnasiumAgent, agent_config("episodes"))):
        engine.may_answer.clear()
        dying = asyncio.create_task(play(examples))
        await engine.wait_until_asked(len(examples))
        assert len(episodes.session_state) == 4
        dying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dying
        del dying
        await engine.wait_until_asked(0)
        engine.may_answer.set()
        results = await play(examples)
    assert [results[number]["reward"] for number in range(4)] == [1.0] * 4
    assert len(episodes.session_state) == 0
