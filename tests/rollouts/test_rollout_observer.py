# SPDX-License-Identifier: Apache-2.0
"""What was observed of a rollout is in its result row: model calls, trajectory, token ids."""

from pathlib import Path
from typing import Any

import pytest

from nemo_gym import rollout_collection
from nemo_gym._rollouts.outcomes import Failed, Scored
from nemo_gym._rollouts.rollout_calls import find_observer
from nemo_gym._rollouts.rollout_observer import RolloutObserver
from nemo_gym._transport.failures import Failure
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.base_responses_api_model import CaptureStore
from nemo_gym.openai_utils import NeMoGymResponseOutputMessageForTraining, NeMoGymResponseOutputText
from nemo_gym.rollout_collection import FailedRollout, RolloutCollectionHelper
from nemo_gym.rollout_observability import TrajectoryRecord
from nemo_gym.testing import reply, running, scripted_model
from nemo_gym.token_id_capture import TokenCaptureStore, TokenEntry, TooManyMaskedSamples
from responses_api_agents.simple_agent.app import SimpleAgent

AGENT = (
    SimpleAgent,
    {
        "resources_server": {"type": "resources_servers", "name": "world"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    },
)
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}


class World(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        if "crash" in body.response.output_text:
            raise ZeroDivisionError("a bug in the verifier")
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


def spoken(text: str, **tokens: Any) -> Any:
    """A reply whose message carries token ids."""
    content = [NeMoGymResponseOutputText(text=text, annotations=[])]
    return reply(NeMoGymResponseOutputMessageForTraining(id=f"msg_{text}", content=content, **tokens))


def row(task: int = 0, **fields: Any) -> dict[str, Any]:
    base = {"responses_create_params": {"input": "x"}, "agent_ref": {"name": "agent"}}
    return {**base, "_ng_task_index": task, "_ng_rollout_index": 0, **fields}


async def played(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], *replies: Any, rows: int | None = None
) -> Any:
    """The results of one rollout per reply, one after the other."""
    results = []
    async with running(global_config=config, world=World, agent=AGENT, policy_model=scripted_model(*replies)) as client:
        monkeypatch.setattr(rollout_collection, "setup_server_client", lambda _=None: client)
        for task in range(rows or len(replies)):
            for one in RolloutCollectionHelper().run_examples([row(task)], route_failures_to_sidecar=True):
                results.append((await one)[1])
    return results


def said_in(result: dict[str, Any]) -> list[str]:
    """What the model answered in each captured call."""
    calls = result["ng_trajectory"]["model_calls"]
    return [call["response"]["output"][0]["content"][0]["text"] for call in calls]


def observability(folder: Path) -> dict[str, Any]:
    return {"observability_enabled": True, "model_call_capture_dir": str(folder)}


def tokens_in(folder: Path, **settings: Any) -> dict[str, Any]:
    return {"token_id_capture": {"enabled": True, "all_agents": True, "dir": str(folder), **settings}}


# --- model calls and trajectories -------------------------------------------------------------------------------------


async def test_a_row_holds_its_model_calls_and_its_trajectory(monkeypatch, tmp_path):
    first, second = await played(monkeypatch, observability(tmp_path), "one", "two")
    for result, said in ((first, "one"), (second, "two")):
        capture = result["ng_model_call_capture"]
        assert capture["metrics"]["num_calls"] == 1
        trajectory = TrajectoryRecord.model_validate(result["ng_trajectory"])
        assert said_in(result) == [said]
        (turn,), (invocation,) = trajectory.turns, trajectory.invocations
        assert (turn.question, turn.answer, turn.step_count) == ("x", said, 1)
        # The collector has found the call that the agent refers to.
        assert [ref.model_call_id for ref in invocation.model_calls] == [capture["calls"][0]["model_call_id"]]
        assert (invocation.status, len(invocation.conversation)) == ("completed", 2)
        assert (trajectory.rollout_id, trajectory.gaps) == (capture["rollout_id"], [])
    assert first["ng_model_call_capture"]["rollout_id"] == "0-0"
    assert second["ng_trajectory"]["task_id"] == "1"


async def test_where_nothing_is_asked_for_nothing_is_added(monkeypatch):
    async with running(world=World, agent=AGENT, policy_model=scripted_model()) as client:
        assert find_observer(client) is None
    (result,) = await played(monkeypatch, {}, "one")
    assert not any(key.startswith("ng_") or key == "_ng_token_capture" for key in result)
    assert result["mask_sample"] is False


async def test_a_failure_tells_of_the_calls_that_led_to_it(monkeypatch, tmp_path):
    (failed,) = await played(monkeypatch, observability(tmp_path), "crash")
    assert isinstance(failed, FailedRollout)
    assert "reward" not in failed
    assert "a bug in the verifier" in failed.failure.message
    assert failed["ng_model_call_capture"]["metrics"]["num_calls"] == 1
    assert said_in(failed) == ["crash"]
    assert [gap["code"] for gap in failed["ng_trajectory"]["gaps"]] == ["turns_unavailable", "conversation_unavailable"]


async def test_a_last_call_that_was_cut_off_cuts_the_rollout_off(tmp_path):
    choice = {"finish_reason": "length", "message": {"role": "assistant", "content": "It is"}}
    CaptureStore(tmp_path).record("0-0", {"response": {"choices": [choice]}})
    outcome = await RolloutObserver([tmp_path], None).complete(Scored(row(), {"reward": 0.0, "response": {}}, 1, 0.1))
    assert outcome.result["_ng_cut_off"] == "length"


async def test_calls_that_an_earlier_run_left_under_the_same_id_are_not_counted(monkeypatch, tmp_path):
    await played(monkeypatch, observability(tmp_path), "one")
    (again,) = await played(monkeypatch, observability(tmp_path), "two")
    assert said_in(again) == ["two"]


# --- token ids --------------------------------------------------------------------------------------------------------


async def test_token_ids_are_in_the_row_and_back_on_the_response(monkeypatch, tmp_path):
    (result,) = await played(monkeypatch, tokens_in(tmp_path), spoken("one", **TOKENS))
    assert result["mask_sample"] is False
    record = result["_ng_token_capture"]["records"][0]
    assert {name: record[name] for name in TOKENS} == TOKENS
    assert {name: result["response"]["output"][0][name] for name in TOKENS} == TOKENS
    assert not list(tmp_path.glob("*.tokens.jsonl")), "what a row holds is not kept twice"


async def test_a_rollout_without_token_ids_is_masked(monkeypatch, tmp_path):
    (result,) = await played(monkeypatch, tokens_in(tmp_path), "one")
    assert result["mask_sample"] is True
    assert "no token ids" in result["_ng_token_capture"]["incomplete_reasons"][0]


async def test_a_rollout_that_is_played_again_gets_its_tokens_again(monkeypatch, tmp_path):
    for _ in range(2):
        (result,) = await played(monkeypatch, tokens_in(tmp_path), spoken("one", **TOKENS))
        assert result["mask_sample"] is False


async def test_only_the_agents_that_ask_for_it_are_captured(monkeypatch, tmp_path):
    (result,) = await played(monkeypatch, tokens_in(tmp_path, all_agents=False), spoken("one", **TOKENS))
    assert "_ng_token_capture" not in result


async def test_too_many_rows_without_tokens_end_a_run(monkeypatch, tmp_path):
    config = tokens_in(tmp_path, max_mask_fraction=0.5, mask_fraction_min_samples=1)
    with pytest.raises(TooManyMaskedSamples, match="1 of 1 rollouts lack token ids"):
        await played(monkeypatch, config, "one")


class BrokenSource(TokenCaptureStore):
    """A store of a user's own that fails at both ends."""

    def __init__(self) -> None: ...

    async def begin_call(self, rollout_id: str, model_call_id: str) -> None: ...

    async def put(self, entry: TokenEntry) -> None: ...

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None: ...

    async def explain_incomplete(self, rollout_id: str, model_call_id: str, reason: str) -> None: ...

    async def restart(self, rollout_id: str) -> None: ...

    async def freeze(self, rollout_id: str) -> Any:
        raise ConnectionError("the store is away")

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        raise ConnectionError("the store is away")


async def test_a_token_source_that_fails_costs_the_tokens_and_not_the_rollout(monkeypatch):
    config = {"token_id_capture": {"enabled": True, "all_agents": True, "sink": f"{__name__}:BrokenSource"}}
    (result,) = await played(monkeypatch, config, "one")
    assert (result["reward"], result["mask_sample"]) == (1.0, True)
    assert "the store is away" in result["_ng_token_capture"]["incomplete_reasons"][0]


# --- the observer by itself -------------------------------------------------------------------------------------------


async def test_an_outcome_of_a_row_without_an_id_stays_as_it_is(tmp_path):
    observer = RolloutObserver([tmp_path], None)
    outcome = Scored({"agent_ref": {"name": "a"}}, {"reward": 1.0}, 1, 0.1)
    await observer.begin(outcome.row)
    assert await observer.complete(outcome) == outcome


async def test_bookkeeping_that_a_user_put_into_a_row_is_in_its_result(tmp_path):
    played_row = row(_ng_curriculum_stage=3, _ng_cut_off="length", _ng_failure_class="agent", other="not bookkeeping")
    outcome = Scored(played_row, {"reward": 1.0}, 1, 0.1)
    result = (await RolloutObserver([tmp_path], None).complete(outcome)).result
    assert (result["_ng_curriculum_stage"], result["agent_ref"]) == (3, {"name": "agent"})
    # How an earlier rollout ended says nothing about this one.
    assert not {"_ng_cut_off", "_ng_failure_class", "other"} & result.keys()


async def test_attempts_have_captures_of_their_own(tmp_path):
    store = CaptureStore(tmp_path)
    observer = RolloutObserver([tmp_path], None)
    for rollout_id in ("0-0", "0-0-a1", "0-0-a1"):
        store.record(rollout_id, {})
    outcome = Failed(row(_ng_attempt_index=1), Failure("agent", "/run", True, "because"), 1, 0.1)
    completed = await observer.complete(outcome)
    assert completed.result["ng_model_call_capture"]["rollout_id"] == "0-0-a1"
    assert len(completed.result["ng_model_call_capture"]["calls"]) == 2
