# SPDX-License-Identifier: Apache-2.0
"""What an agent observes: strict shapes, told apart by `kind`, and the trajectory that a result row makes of them."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from nemo_gym.rollout_observability import (
    AgentEpisode,
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    SandboxObservation,
    ToolCallObservation,
    TrajectoryRecord,
    TrajectoryToolCall,
    TrajectoryTurn,
    trajectory_from_record,
)

MINIMAL: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (AgentInvocation, {"invocation_id": "main"}),
    (ToolCallObservation, {}),
    (ContextCompactionObservation, {}),
    (SandboxObservation, {}),
    (ObservationGap, {"code": "no_events"}),
    (ModelCallRef, {"model_call_id": "mc_1"}),
    (AgentObservationBundle, {"source": "my_agent"}),
    (TrajectoryTurn, {"turn_index": 0}),
    (TrajectoryToolCall, {}),
    (TrajectoryRecord, {}),
]


@pytest.mark.parametrize(("model", "fields"), MINIMAL)
def test_every_shape_refuses_fields_that_it_does_not_know(model: type[BaseModel], fields: dict[str, Any]):
    assert model(**fields)
    with pytest.raises(ValidationError, match="surprise"):
        model(**fields, surprise=1)


def test_records_of_a_bundle_are_told_apart_by_kind_after_a_trip_through_json():
    bundle = AgentObservationBundle(
        source="my_agent",
        records=[
            AgentInvocation(invocation_id="main", model_calls=[ModelCallRef(model_call_id="mc_1")]),
            ToolCallObservation(tool_call_id="call_1", invocation_id="main", tool_name="add", arguments={"a": 1}),
            ContextCompactionObservation(invocation_id="main", tokens_before=900, tokens_after=100),
            SandboxObservation(sandbox_id="s", provider="docker"),
        ],
        gaps=[ObservationGap(code="no_events", invocation_id="main", detail="the log was empty")],
    )
    again = AgentObservationBundle.model_validate_json(bundle.model_dump_json())
    assert again == bundle
    assert [record.kind for record in again.records] == [
        "agent_invocation",
        "tool_call",
        "context_compaction",
        "sandbox",
    ]


def test_a_record_of_unknown_kind_is_refused():
    with pytest.raises(ValidationError, match="kind"):
        AgentObservationBundle.model_validate({"source": "x", "records": [{"kind": "telepathy"}]})


def test_an_episode_takes_its_two_parts_by_position_or_by_name():
    response, observations = object(), AgentObservationBundle(source="x")
    for episode in (AgentEpisode(response, observations), AgentEpisode(response=response, observations=observations)):
        assert episode.response is response
        assert episode.observations is observations
    assert AgentEpisode(response).observations is None
    with pytest.raises(ValidationError, match="surprise"):
        AgentEpisode(response, surprise=1)


def test_a_trajectory_carries_its_schema_version():
    record = TrajectoryRecord(task_id="3", rollout_id="3-0", turns=[TrajectoryTurn(turn_index=0)])
    assert record.model_dump()["schema_version"] == "1.0"
    with pytest.raises(ValidationError, match="schema_version"):
        TrajectoryRecord.model_validate({"schema_version": "2.0"})


# --- from a result row to its trajectory ------------------------------------------------------------------------------


def call(call_id: str, *asked: str, **fields: Any) -> dict[str, Any]:
    """A captured model call that asks for the tool calls `asked`."""
    output = [{"type": "function_call", "call_id": one, "name": "look", "arguments": "{}"} for one in asked]
    response = {"id": f"resp_{call_id}", "output": output}
    return {"model_call_id": call_id, "dialect": "responses", "response": response, "status_code": 200, **fields}


def record(*calls: dict[str, Any], output: Any = (), **fields: Any) -> dict[str, Any]:
    capture = {"rollout_id": "2-1", "metrics": {}, "calls": list(calls), "gaps": []}
    base = {"_ng_task_index": 2, "_ng_rollout_index": 1, "agent_ref": {"name": "a"}, "reward": 1.0}
    return {**base, "response": {"output": list(output)}, "ng_model_call_capture": capture, **fields}


def test_an_agent_that_observed_nothing_is_one_invocation_with_a_turn_per_model_call():
    output = [
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a door"},
        {"type": "message", "content": "done"},
    ]
    trajectory = trajectory_from_record(record(call("m1", "c1"), call("m2"), output=output))
    (invocation,) = trajectory.invocations
    assert (invocation.invocation_id, invocation.agent_name, invocation.status) == ("2-1", "a", "completed")
    assert [turn.tool_call_ids for turn in trajectory.turns] == [["c1"], []]
    assert {turn.invocation_id for turn in trajectory.turns} == {"2-1"}
    assert [ref.response_id for ref in trajectory.model_calls] == ["resp_m1", "resp_m2"]
    (tool_call,) = trajectory.tool_calls
    assert (tool_call.model_call_id, tool_call.output, tool_call.status) == ("m1", "a door", "completed")
    assert trajectory.gaps == []


def test_what_an_agent_observed_says_who_made_which_call():
    bundle = AgentObservationBundle(
        source="harness",
        records=[
            AgentInvocation(invocation_id="main", model_calls=[ModelCallRef(model_call_id="m1")]),
            AgentInvocation(
                invocation_id="sub", parent_invocation_id="main", model_calls=[ModelCallRef(model_call_id="unseen")]
            ),
            ToolCallObservation(tool_call_id="c1", invocation_id="main", output="seen", status="failed"),
        ],
        gaps=[ObservationGap(code="events_lost")],
    ).model_dump()
    trajectory = trajectory_from_record(record(call("m1", "c1"), call("m2"), ng_agent_observations=[bundle]))
    assert [(ref.model_call_id, ref.invocation_id) for ref in trajectory.model_calls] == [
        ("m1", "main"),
        ("m2", None),
        ("unseen", "sub"),
    ]
    (tool_call,) = trajectory.tool_calls
    assert (tool_call.model_call_id, tool_call.output, tool_call.status) == ("m1", "seen", "failed")
    assert [gap.code for gap in trajectory.gaps] == ["events_lost"]
    assert trajectory_from_record(record(ng_agent_observations=bundle)).invocations[0].invocation_id == "main"


def test_what_is_missing_or_unreadable_is_a_gap_and_never_an_error():
    capture = {"calls": [], "gaps": [{"code": "write_failed", "detail": "disk full", "model_call_id": None}]}
    odd = record(ng_agent_observations=[{"source": 1}, "text"], ng_model_call_capture=capture, response="text")
    codes = [gap.code for gap in trajectory_from_record(odd).gaps]
    assert codes == ["write_failed", "no_model_calls", "invalid_observations", "invalid_observations"]
    assert trajectory_from_record({}).invocations[0].status == "failed"


STREAM = 'data: {"type":"response.created","response":{"id":"r1"}}\n\ndata: '
STREAM += '{"type":"response.output_item.done","item":{"type":"function_call","call_id":"c9"}}\n\n'


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"id": "r1", "choices": [{"message": {"tool_calls": [{"id": "c9"}]}}]}, ("r1", ["c9"])),
        ({"id": "r1", "content": [{"type": "text"}, {"type": "tool_use", "id": "c9"}]}, ("r1", ["c9"])),
        (STREAM, ("r1", ["c9"])),
        ('data: {"id":"r1","choices":[{"delta":{"tool_calls":[{"id":"c9"},{"index":0}]}}]}\n\n', ("r1", ["c9"])),
        (None, (None, [])),
        ("not a stream", (None, [])),
        ({"id": 3, "output": {"type": "x"}, "choices": [None], "content": "text"}, (None, [])),
    ],
)
def test_ids_are_found_in_every_dialect_plain_or_streamed(response, expected):
    trajectory = trajectory_from_record(record({**call("m1"), "response": response}))
    assert (trajectory.model_calls[0].response_id, trajectory.turns[0].tool_call_ids) == expected
