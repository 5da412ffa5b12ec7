# SPDX-License-Identifier: Apache-2.0
"""The trajectory of a row: what the agent told, what it observed and what was captured, in one record."""

from typing import Any

import pytest

from nemo_gym._rollouts import rollout_trajectory
from nemo_gym.rollout_collection import _attach_trajectory_record
from nemo_gym.rollout_observability import TrajectoryRecord

MODEL_REF = {"type": "responses_api_models", "name": "policy_model"}
ROW = {"_ng_task_index": 2, "_ng_rollout_index": 1}
TURN = {"invocation_id": "main", "task_id": "2", "rollout_id": "2-1", "turn_no": 1, "timestamp": 1.0, "step_count": 1}


def capture(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"ng_model_call_capture": {"rollout_id": "2-1", "metrics": {}, "calls": list(calls), **fields}}


def call(model_call_id: str | None, **fields: Any) -> dict[str, Any]:
    known = {"model_call_id": model_call_id, "response_id": "r", "model_ref": MODEL_REF, "status_code": 200}
    payloads = {"request": {"input": "x"}, "response": {"id": "r"}, "request_raw": None, "response_raw": None}
    return {**known, "latency_total_ms": 5.0, "tokens_in": 2, "tokens_out": 3, **payloads, **fields}


def bundle(*records: dict[str, Any], gaps: Any = ()) -> dict[str, Any]:
    return {"ng_agent_observations": {"source": "x", "records": list(records), "gaps": list(gaps)}}


def told(**fields: Any) -> dict[str, Any]:
    return {"ng_trajectory": {"schema_version": "1.0", "task_id": "2", "rollout_id": "2-1", **fields}}


def trajectory_of(result: dict[str, Any], row: dict[str, Any] | None = None) -> TrajectoryRecord:
    assert _attach_trajectory_record(ROW if row is None else row, result) is result
    return TrajectoryRecord.model_validate(result["ng_trajectory"])


def gaps_of(trajectory: TrajectoryRecord) -> list[tuple[str, str | None]]:
    return [(gap.code, gap.detail) for gap in trajectory.gaps]


def codes_of(trajectory: TrajectoryRecord) -> list[str]:
    return [gap.code for gap in trajectory.gaps]


CONVERSATION = [
    {"role": "user", "content": "What is there?"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a door"},
]
MAIN = {"kind": "agent_invocation", "invocation_id": "main", "conversation": CONVERSATION}


def test_a_result_of_which_nothing_was_observed_has_no_trajectory():
    assert _attach_trajectory_record(ROW, {"reward": 1.0}) == {"reward": 1.0}


@pytest.mark.parametrize(
    ("row", "task_id"),
    [
        ({**ROW, "task_id": 7, "problem_id": "p", "instance_id": "i"}, "7"),
        ({**ROW, "task_id": None, "problem_id": "p", "instance_id": "i"}, "p"),
        ({**ROW, "instance_id": "i"}, "i"),
        (ROW, "2"),
    ],
)
def test_the_task_is_named_as_its_environment_names_it(row: dict[str, Any], task_id: str):
    trajectory = trajectory_of(capture(call("a")), row)
    assert (trajectory.task_id, trajectory.rollout_id) == (task_id, "2-1")


# --- captured calls ---------------------------------------------------------------------------------------------------


def test_captured_calls_are_the_model_calls_and_what_was_said_moves_there():
    result = capture(call("a", finish_reason="stop", cached_tokens=1, latency_ttft_ms=2.0, started_at=1.0), call("b"))
    trajectory = trajectory_of(result)
    first, second = trajectory.model_calls
    assert (first.model_call_id, first.started_at, first.duration_ms) == ("a", 1.0, 5.0)
    assert (first.request, first.response) == ({"input": "x"}, {"id": "r"})
    assert first.response_metadata.model_dump(exclude_none=True) == {
        "response_id": "r",
        "model_ref": MODEL_REF,
        "status_code": 200,
        "finish_reason": "stop",
        "latency_ttft_ms": 2.0,
    }
    assert first.token_stats.model_dump(exclude_none=True) == {
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "cached_tokens": 1,
    }
    for left in result["ng_model_call_capture"]["calls"]:
        assert left.keys().isdisjoint({"request", "response", "request_raw", "response_raw"})
        assert left["tokens_in"] == 2
    assert codes_of(trajectory) == ["turns_unavailable", "conversation_unavailable"]
    assert second.model_call_id == "b"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"response": {"status": "incomplete"}}, "incomplete"),
        ({"response": {"status": "completed"}, "response_status": "failed"}, "failed"),
        ({"response": {"status": 3}}, None),
        ({"response": None, "response_raw": "status"}, None),
    ],
)
def test_a_call_without_a_status_takes_it_from_its_response(fields: dict[str, Any], status: str | None):
    (one,) = trajectory_of(capture(call("a", **fields))).model_calls
    assert one.response_metadata.response_status == status


def test_what_could_not_be_parsed_is_there_as_text():
    unparsed = call("a", request=None, request_raw="{oops", response=None, response_raw="<html>")
    (one,) = trajectory_of(capture(unparsed)).model_calls
    assert (one.request, one.response) == ("{oops", "<html>")


def test_a_history_without_its_pictures_brings_no_requests_back():
    redacted = [{"code": "multimodal_history_redacted"}]
    for other in (bundle(MAIN, gaps=redacted), told(gaps=redacted), {}):
        result = {**capture(call("a"), **({} if other else {"gaps": redacted})), **other}
        (one,) = trajectory_of(result).model_calls
        assert (one.request, one.response, one.duration_ms) == (None, None, 5.0)
        assert "request" not in result["ng_model_call_capture"]["calls"][0]


def test_gaps_of_the_capture_and_the_lack_of_calls_are_told():
    trajectory = trajectory_of(capture(gaps=[{"code": "model_call_capture_incomplete", "detail": "disk full"}]))
    assert gaps_of(trajectory) == [
        ("model_call_capture_incomplete", "disk full"),
        ("model_calls_unavailable", None),
        ("turns_unavailable", None),
        ("conversation_unavailable", None),
    ]


# --- observations -----------------------------------------------------------------------------------------------------


def test_invocations_and_tool_calls_come_from_the_observations_with_the_outputs_of_the_conversation():
    tool_call = {"kind": "tool_call", "invocation_id": "main", "tool_call_id": "c1", "status": "completed"}
    elsewhere = {"kind": "tool_call", "invocation_id": "sub", "tool_call_id": "c1"}
    sandbox = {"kind": "sandbox", "role": "agent"}
    lost = {"code": "events_lost", "invocation_id": "main"}
    result = {**bundle(MAIN, tool_call, elsewhere, sandbox, gaps=[lost, lost]), **capture(call("a"))}
    trajectory = trajectory_of(result)
    assert [one.invocation_id for one in trajectory.invocations] == ["main"]
    assert [(one.invocation_id, one.status, one.output) for one in trajectory.tool_calls] == [
        ("main", "completed", "a door"),
        ("sub", "unknown", None),
    ]
    assert codes_of(trajectory) == ["events_lost", "turns_unavailable"]


@pytest.mark.parametrize("given", ["text", [], {"source": "x", "records": [{"kind": "?"}]}])
def test_observations_that_are_none_are_a_gap(given: Any):
    trajectory = trajectory_of({"ng_agent_observations": given, **capture(call("a"))})
    assert codes_of(trajectory)[0] == "agent_observations_invalid"
    assert len(trajectory.model_calls) == 1


# --- the agent's own trajectory ---------------------------------------------------------------------------------------


def test_the_agents_own_trajectory_is_merged_with_what_was_observed_and_captured():
    own = told(
        invocations=[{"invocation_id": "main", "status": "completed", "duration_ms": 9.0}],
        turns=[{**TURN, "turn_no": 2, "timestamp": 3.0}, TURN, {**TURN, "invocation_id": "a"}],
        model_calls=[{"model_call_id": "a", "response_metadata": {"model": "m"}}, {"model_call_id": "other"}],
        tool_calls=[
            {"invocation_id": "main", "tool_call_id": "c1", "status": "failed", "output": "told"},
            {"invocation_id": "main", "tool_call_id": "c2", "started_at": 1.0},
        ],
        gaps=[{"code": "own"}],
    )
    observed = bundle(
        MAIN,
        {"kind": "tool_call", "invocation_id": "main", "tool_call_id": "c1", "duration_ms": 4.0},
        {"kind": "tool_call", "invocation_id": "main", "tool_call_id": "c2", "status": "timeout"},
    )
    trajectory = trajectory_of({**own, **observed, **capture(call("a"), call("b"))})
    (invocation,) = trajectory.invocations
    assert (invocation.status, invocation.duration_ms, len(invocation.conversation)) == ("completed", 9.0, 3)
    assert [(turn.timestamp, turn.invocation_id, turn.turn_no) for turn in trajectory.turns] == [
        (1.0, "a", 1),
        (1.0, "main", 1),
        (3.0, "main", 2),
    ]
    assert [one.model_call_id for one in trajectory.model_calls] == ["a", "other", "b"]
    merged = trajectory.model_calls[0]
    assert (merged.response_metadata.model, merged.response_metadata.status_code, merged.duration_ms) == ("m", 200, 5.0)
    first, second = trajectory.tool_calls
    assert (first.status, first.output, first.duration_ms) == ("failed", "told", 4.0)
    assert (second.status, second.started_at) == ("timeout", 1.0)
    assert codes_of(trajectory) == ["own"]


def test_a_trajectory_under_another_name_is_put_under_the_rows():
    trajectory = trajectory_of(
        told(task_id="mine", rollout_id="mine-0", turns=[{**TURN, "task_id": "mine", "rollout_id": "mine-0"}])
    )
    assert (trajectory.task_id, trajectory.rollout_id, trajectory.turns[0].task_id) == ("2", "2-1", "2")
    assert gaps_of(trajectory)[0] == ("producer_trajectory_identity_mismatch", "task_id,rollout_id")
    (turn,) = trajectory_of(told(turns=[{**TURN, "rollout_id": "other"}])).turns
    assert turn.rollout_id == "2-1"


@pytest.mark.parametrize(
    "own", ["text", {}, {"turns": [{"turn_no": 1}]}, {"task_id": "2", "rollout_id": "2-1", "x": 1}]
)
def test_a_trajectory_that_is_none_is_a_gap(own: Any):
    trajectory = trajectory_of({"ng_trajectory": own, **capture(call("a"))})
    assert codes_of(trajectory)[0] == "producer_trajectory_invalid"
    assert len(trajectory.model_calls) == 1


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_trajectory_that_cannot_be_made_is_noted_where_there_is_room(monkeypatch: pytest.MonkeyPatch):
    def fail(*args: Any) -> Any:
        raise KeyError("a bug of ours")

    monkeypatch.setattr(rollout_trajectory, "build_trajectory", fail)
    noted = {"code": "trajectory_projection_failed", "detail": "KeyError"}
    both = _attach_trajectory_record(ROW, {**capture(call("a"), gaps=[{"code": "x"}]), **bundle()})
    assert both["ng_model_call_capture"]["gaps"] == [{"code": "x"}, noted]
    assert both["ng_model_call_capture"]["calls"][0]["request"], "nothing is lost"
    assert (both["ng_agent_observations"]["gaps"], "ng_trajectory" in both) == ([], False)
    assert _attach_trajectory_record(ROW, bundle())["ng_agent_observations"]["gaps"] == [noted]
    bare = TrajectoryRecord.model_validate(_attach_trajectory_record(ROW, told())["ng_trajectory"])
    assert (bare.rollout_id, gaps_of(bare)) == ("2-1", [("trajectory_projection_failed", "KeyError")])


def test_a_row_without_identity_cannot_have_one():
    result = _attach_trajectory_record({}, {"ng_agent_observations": {"source": "x"}})
    assert result["ng_agent_observations"]["gaps"][0]["code"] == "trajectory_projection_failed"
