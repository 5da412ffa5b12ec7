# SPDX-License-Identifier: Apache-2.0
"""The shapes of what an agent observes: strict, told apart by `kind`, and the same after a trip through JSON."""

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
