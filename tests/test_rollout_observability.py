# SPDX-License-Identifier: Apache-2.0
"""What an agent observes: strict models, told apart by `kind`, and how they are joined with the captured calls."""

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from nemo_gym.base_responses_api_model import ModelCallRecord
from nemo_gym.openai_utils import NeMoGymFunctionCallOutput
from nemo_gym.rollout_observability import (
    AgentEpisode,
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    SandboxObservation,
    ToolCallObservation,
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryResponseMetadata,
    TrajectoryTokenStats,
    TrajectoryToolCall,
    TrajectoryTurn,
    join_model_call_observations,
)
from nemo_gym.testing import reply

MODEL: Any = {"type": "responses_api_models", "name": "policy_model"}
TOOL = {"invocation_id": "main", "tool_call_id": "c"}
TURN = {"invocation_id": "main", "task_id": "t", "rollout_id": "t-0", "turn_no": 1, "timestamp": 1.0, "step_count": 0}
MINIMAL: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (ModelCallRef, {"model_call_id": "a"}),
    (AgentInvocation, {"invocation_id": "main"}),
    (ToolCallObservation, TOOL),
    (SandboxObservation, {"role": "agent"}),
    (ContextCompactionObservation, {"invocation_id": "main"}),
    (ObservationGap, {"code": "no_events"}),
    (AgentObservationBundle, {"source": "my_agent"}),
    (TrajectoryTokenStats, {}),
    (TrajectoryResponseMetadata, {}),
    (TrajectoryModelCall, {}),
    (TrajectoryTurn, TURN),
    (TrajectoryToolCall, TOOL),
    (TrajectoryRecord, {"task_id": "t", "rollout_id": "t-0"}),
]


# --- the models -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "fields"), MINIMAL)
def test_every_model_refuses_fields_that_it_does_not_know_and_checks_what_is_assigned(model, fields):
    assert model(**fields)
    with pytest.raises(ValidationError, match="surprise"):
        model(**fields, surprise=1)
    assert model.model_config["validate_assignment"] is True


@pytest.mark.parametrize(
    ("model", "fields", "problem"),
    [
        (ModelCallRef, {}, "model_call_id"),
        (ModelCallRef, {"response_id": "r"}, "model_ref"),
        (ModelCallRef, {"model_ref": MODEL}, "response_id"),
        (AgentInvocation, {"invocation_id": "i", "duration_ms": -1}, "duration_ms"),
        (AgentInvocation, {"invocation_id": "i", "status": "cancelled"}, "status"),
        (ToolCallObservation, {**TOOL, "started_at": 2.0, "completed_at": 1.0}, "before started_at"),
        (ToolCallObservation, {**TOOL, "duration_ms": -0.1}, "duration_ms"),
        (ToolCallObservation, {**TOOL, "timing_source": "guess"}, "timing_source"),
        (SandboxObservation, {}, "role"),
        (SandboxObservation, {"role": "agent", "wall_time_s": -1}, "wall_time_s"),
        (SandboxObservation, {"role": "agent", "peak_memory_mib": -1}, "peak_memory_mib"),
        (ContextCompactionObservation, {"invocation_id": "i", "tokens_before": -1}, "tokens_before"),
        (TrajectoryTokenStats, {"cached_tokens": -1}, "cached_tokens"),
        (TrajectoryResponseMetadata, {"latency_ttft_ms": -1}, "latency_ttft_ms"),
        (TrajectoryModelCall, {"duration_ms": -1}, "duration_ms"),
        (TrajectoryTurn, {**TURN, "turn_no": 0}, "turn_no"),
        (TrajectoryTurn, {**TURN, "step_count": -1}, "step_count"),
        (TrajectoryRecord, {"task_id": "t", "rollout_id": "r", "schema_version": "2.0"}, "schema_version"),
    ],
)
def test_what_cannot_be_is_refused(model: type[BaseModel], fields: dict[str, Any], problem: str):
    with pytest.raises(ValidationError, match=problem):
        model(**fields)


@pytest.mark.parametrize("role", ["agent", "verifier", "environment"])
@pytest.mark.parametrize("outcome", ["completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"])
def test_a_sandbox_has_a_role_and_an_outcome(role: Any, outcome: Any):
    assert SandboxObservation(role=role, outcome=outcome).outcome == outcome


def test_an_assignment_is_checked_like_a_field():
    call = ToolCallObservation(**TOOL, started_at=2.0)
    with pytest.raises(ValidationError, match="before started_at"):
        call.completed_at = 1.0


@pytest.mark.parametrize("identity", [{}, {"response_id": "r"}, {"model_ref": MODEL}])
def test_a_model_call_needs_its_id_or_its_model_and_response(identity):
    with pytest.raises(ValidationError, match="model_call_id or both model_ref and response_id"):
        ModelCallRef(**identity)


def test_records_of_a_bundle_are_told_apart_by_kind_after_a_trip_through_json():
    call = ModelCallRef(model_ref=MODEL, response_id="r")
    conversation: Any = [
        {"role": "user", "content": "hei"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "a door"},
        reply("done").output[0],
    ]
    bundle = AgentObservationBundle(
        source="my_agent",
        records=[
            AgentInvocation(invocation_id="main", model_calls=[call], conversation=conversation),
            ToolCallObservation(**TOOL, tool_name="add", started_at=1.0, completed_at=1.0, timing_source="harness"),
            SandboxObservation(role="environment", sandbox_id="s", provider="docker", exit_code=-9),
            ContextCompactionObservation(invocation_id="main", tokens_before=900, tokens_after=100, model_calls=[call]),
        ],
        gaps=[ObservationGap(code="no_events", invocation_id="main", detail="the log was empty")],
    )
    again = AgentObservationBundle.model_validate_json(bundle.model_dump_json())
    assert again.model_dump() == bundle.model_dump()
    assert [one.kind for one in again.records] == ["agent_invocation", "tool_call", "sandbox", "context_compaction"]
    invocation = again.records[0]
    assert isinstance(invocation, AgentInvocation)
    assert isinstance(invocation.conversation[2], NeMoGymFunctionCallOutput)
    with pytest.raises(ValidationError, match="kind"):
        AgentObservationBundle.model_validate({"source": "x", "records": [{"kind": "telepathy"}]})


def invocations(*parents: tuple[str, str | None]) -> list[AgentInvocation]:
    return [AgentInvocation(invocation_id=own, parent_invocation_id=parent) for own, parent in parents]


def test_invocations_form_a_tree_whose_root_may_be_unknown():
    assert AgentObservationBundle(source="x", records=invocations(("b", "a"), ("c", "b")))
    with pytest.raises(ValidationError, match="'b' occurs twice"):
        AgentObservationBundle(source="x", records=invocations(("b", None), ("b", "a")))
    for cycle in ([("a", "a")], [("a", "b"), ("b", "a")], [("z", "a"), ("a", "b"), ("b", "c"), ("c", "a")]):
        with pytest.raises(ValidationError, match="parent_invocation_id must not form a cycle"):
            AgentObservationBundle(source="x", records=invocations(*cycle))


def test_an_episode_has_two_parts_and_does_not_change():
    response, observations = reply("done"), AgentObservationBundle(source="x")
    episode = AgentEpisode(response, observations)
    assert (episode.response, episode.observations) == (response, observations)
    with pytest.raises(TypeError):
        AgentEpisode(response)  # type: ignore[call-arg]
    with pytest.raises(dataclasses.FrozenInstanceError):
        episode.response = response  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"invocations": invocations(("a", None), ("a", None))}, "invocation_id must be unique: 'a' occurs twice"),
        (
            {"model_calls": [{"model_call_id": "m"}, {"model_call_id": "m"}]},
            "model_call_id must be unique: 'm' occurs twice",
        ),
        ({"turns": [TURN, TURN]}, "turn_no"),
        ({"turns": [{**TURN, "rollout_id": "other"}]}, "'other'"),
        ({"turns": [{**TURN, "task_id": "other"}]}, "'other'"),
    ],
)
def test_a_trajectory_is_of_one_rollout_and_names_everything_once(fields: dict[str, Any], problem: str):
    with pytest.raises(ValidationError, match=problem):
        TrajectoryRecord(task_id="t", rollout_id="t-0", **fields)


def test_calls_without_an_id_and_turns_of_several_invocations_are_no_duplicates():
    turns: Any = [TURN, {**TURN, "turn_no": 2}, {**TURN, "invocation_id": "sub"}]
    record = TrajectoryRecord(task_id="t", rollout_id="t-0", turns=turns, model_calls=[{}, {}])  # type: ignore[list-item]
    assert record.model_dump()["schema_version"] == "1.0"


# --- the join ---------------------------------------------------------------------------------------------------------


def captured(index: int, model_call_id: str | None, response_id: str | None = None) -> ModelCallRecord:
    return ModelCallRecord(
        call_index=index, model_call_id=model_call_id, response_id=response_id or f"r{index}", model_ref=MODEL
    )


def by_response(response_id: str) -> ModelCallRef:
    return ModelCallRef(model_ref=MODEL, response_id=response_id)


def by_id(model_call_id: str, **fields: Any) -> ModelCallRef:
    return ModelCallRef(model_call_id=model_call_id, **fields)


def bundle_of(*records: Any, gaps: Any = ()) -> AgentObservationBundle:
    return AgentObservationBundle(source="x", records=list(records), gaps=list(gaps))


def told(bundle: AgentObservationBundle) -> list[tuple[str, str | None, str | None]]:
    return [(gap.code, gap.invocation_id, gap.detail) for gap in bundle.gaps]


CALLS = [captured(0, "m0"), captured(1, "m1")]
FULL = [by_id("m0", model_ref=MODEL, response_id="r0"), by_id("m1", model_ref=MODEL, response_id="r1")]


def test_a_reference_that_one_call_fits_becomes_whole_and_the_bundle_given_stays_as_it_was():
    bundle = bundle_of(AgentInvocation(invocation_id="main", model_calls=[by_id("m0"), by_response("r1")]))
    before = bundle.model_dump()
    joined = join_model_call_observations(bundle, CALLS)
    (invocation,) = joined.records
    assert isinstance(invocation, AgentInvocation)
    assert (invocation.model_calls, joined.gaps) == (FULL, [])
    assert bundle.model_dump() == before


@pytest.mark.parametrize(
    ("ref", "calls", "code", "detail"),
    [
        (by_id("m9"), CALLS, "unmatched", "m9"),
        (by_id("m0", response_id="r1"), CALLS, "unmatched", "m0"),
        (by_id("m0", model_ref={**MODEL, "name": "other"}), CALLS, "unmatched", "m0"),
        (by_response("r9"), CALLS, "unmatched", "r9"),
        (by_response("r0"), [captured(0, "m0", "r0"), captured(1, "m1", "r0")], "ambiguous", "r0"),
        (by_id("m0"), [captured(0, "m0"), captured(1, "m0")], "ambiguous", "m0"),
    ],
)
def test_a_reference_that_not_exactly_one_call_fits_is_a_gap(ref, calls, code, detail):
    joined = join_model_call_observations(bundle_of(AgentInvocation(invocation_id="main", model_calls=[ref])), calls)
    assert joined.records[0].model_calls == [ref]  # type: ignore[union-attr]
    assert told(joined)[0] == (f"model_call_reference_{code}", "main", detail)


def test_a_call_that_is_owned_is_in_conflict_with_a_second_claim():
    joined = join_model_call_observations(
        bundle_of(
            AgentInvocation(invocation_id="main", model_calls=[by_id("m0")]),
            AgentInvocation(invocation_id="sub", model_calls=[by_response("r0"), by_id("m1")]),
        ),
        CALLS,
    )
    assert told(joined) == [("model_call_reference_conflict", "sub", "r0")]
    assert joined.records[1].model_calls == [by_response("r0"), FULL[1]]  # type: ignore[union-attr]


def test_calls_that_nobody_owns_are_gaps_by_what_is_known_of_them():
    calls = [captured(0, "m0"), captured(3, None, "r3"), ModelCallRecord(call_index=4)]
    code = "model_call_ownership_unavailable"
    assert told(join_model_call_observations(bundle_of(), calls)) == [
        (code, None, "capture:m0:call_index=0"),
        (code, None, "capture:r3:call_index=3"),
        (code, None, "capture:unknown:call_index=4"),
    ]


def compaction(**fields: Any) -> ContextCompactionObservation:
    return ContextCompactionObservation(invocation_id="main", **fields)


def test_the_calls_of_a_compaction_are_of_its_own_invocation():
    refs = [by_id("m0"), by_id("m1"), by_id("m2"), by_id("m9")]
    calls = [*CALLS, captured(2, "m2")]
    joined = join_model_call_observations(
        bundle_of(
            compaction(model_calls=refs),  # before the invocations that own the calls: order does not matter
            AgentInvocation(invocation_id="main", model_calls=[by_id("m0")]),
            AgentInvocation(invocation_id="sub", model_calls=[by_id("m1")]),
        ),
        calls,
    )
    assert joined.records[0].model_calls == [FULL[0], *refs[1:]]  # type: ignore[union-attr]
    assert told(joined) == [
        ("model_call_reference_conflict", "main", "model_calls:m1"),
        ("model_call_ownership_unavailable", "main", "model_calls:m2"),
        ("model_call_reference_unmatched", "main", "model_calls:m9"),
        ("model_call_ownership_unavailable", None, "capture:m2:call_index=2"),
    ]


def test_the_neighbours_of_a_compaction_may_be_nobodys_but_not_anothers():
    joined = join_model_call_observations(
        bundle_of(
            AgentInvocation(invocation_id="sub", model_calls=[by_id("m1")]),
            compaction(before_model_call=by_response("r0"), after_model_call=by_id("m1")),
            compaction(before_model_call=by_response("r1")),
        ),
        CALLS,
    )
    first, second = joined.records[1:]
    assert isinstance(first, ContextCompactionObservation)
    assert isinstance(second, ContextCompactionObservation)
    assert (first.before_model_call, first.after_model_call) == (FULL[0], by_id("m1"))
    assert second.before_model_call == by_response("r1")
    assert told(joined) == [
        ("model_call_reference_conflict", "main", "after_model_call:m1"),
        ("model_call_reference_conflict", "main", "before_model_call:r1"),
        ("model_call_ownership_unavailable", None, "capture:m0:call_index=0"),
    ]


def test_a_second_join_replaces_the_gaps_of_the_first_and_keeps_the_agents_own():
    own = ObservationGap(code="events_lost", detail="3")
    bundle = bundle_of(AgentInvocation(invocation_id="main", model_calls=[by_id("m0")]), gaps=[own, own])
    first = join_model_call_observations(bundle, [])
    assert told(first) == [("events_lost", None, "3"), ("model_call_reference_unmatched", "main", "m0")]
    second = join_model_call_observations(first, CALLS[:1])
    assert told(second) == [("events_lost", None, "3")]
    assert join_model_call_observations(second, CALLS[:1]) == second
