# SPDX-License-Identifier: Apache-2.0
"""Puts together the trajectory of a result row: what its agent reported and observed, and the captured model calls.

A problem with any of these never costs the rollout: what cannot be reported is a gap. Requests and responses move from
the capture into the trajectory, so that a row holds them once.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from nemo_gym._training.capture.call_records import PAYLOAD_FIELDS
from nemo_gym._util.json_shapes import as_list, as_mapping, as_text
from nemo_gym._util.row_keys import (
    AGENT_OBSERVATIONS_KEY,
    MODEL_CALL_CAPTURE_KEY,
    OBSERVED_KEYS,
    TRAJECTORY_KEY,
)
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body, task_id_from_run_body
from nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ObservationGap,
    ObservationModel,
    ToolCallObservation,
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryResponseMetadata,
    TrajectoryTokenStats,
    TrajectoryToolCall,
    drop_duplicate_gaps,
)

LOG = logging.getLogger(__name__)

REDACTED = "multimodal_history_redacted"

_IDENTITY = ("task_id", "rollout_id")
_METADATA = tuple(TrajectoryResponseMetadata.model_fields)
_TOKEN_STATS = {
    "prompt_tokens": "tokens_in",
    "completion_tokens": "tokens_out",
    "reasoning_tokens": "tokens_reasoning",
    "total_tokens": "tokens_total",
    "cached_tokens": "cached_tokens",
}

ModelT = TypeVar("ModelT", bound=ObservationModel)


def attach_trajectory(row: Mapping[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Put the trajectory of `row` into its `result`, if anything was observed, and return the result."""
    if not any(result.get(key) is not None for key in OBSERVED_KEYS):
        return result
    try:
        trajectory = build_trajectory(row, result)
        result[TRAJECTORY_KEY] = _dump_trajectory(trajectory)
        for call in _list_captured_calls(result):
            for name in PAYLOAD_FIELDS:
                call.pop(name, None)
    except Exception as error:
        # A result holds other people's data, which must not cost the rollout.
        LOG.warning("the trajectory of a rollout could not be put together: %s", error)
        _note_failure(row, result, error)
    return result


def build_trajectory(row: Mapping[str, Any], result: Mapping[str, Any]) -> TrajectoryRecord:
    """Return the trajectory of `row` and its `result`."""
    task_id, rollout_id = _find_identity(row, result)
    trajectory = _read_agent_trajectory(result.get(TRAJECTORY_KEY), task_id, rollout_id)
    gaps = list(trajectory.gaps)
    invocations = trajectory.invocations
    tool_calls = list[ToolCallObservation]()
    if result.get(AGENT_OBSERVATIONS_KEY) is not None:
        try:
            bundle = AgentObservationBundle.model_validate(result[AGENT_OBSERVATIONS_KEY])
        except ValidationError as error:
            gaps.append(ObservationGap(code="agent_observations_invalid", detail=_describe_first_problem(error)))
        else:
            seen = [one for one in bundle.records if isinstance(one, AgentInvocation)]
            invocations = _merge(invocations, seen, lambda one: one.invocation_id)
            tool_calls = [one for one in bundle.records if isinstance(one, ToolCallObservation)]
            gaps += bundle.gaps
    capture = as_mapping(result.get(MODEL_CALL_CAPTURE_KEY))
    gaps += [ObservationGap.model_validate(gap) for gap in as_list(capture.get("gaps"))]
    with_payloads = not is_redacted(result)
    captured = [_build_model_call(call, with_payloads=with_payloads) for call in _list_captured_calls(result)]
    model_calls = _merge(trajectory.model_calls, captured, lambda call: call.model_call_id)
    if not model_calls:
        gaps.append(ObservationGap(code="model_calls_unavailable"))
    if not trajectory.turns:
        gaps.append(ObservationGap(code="turns_unavailable"))
    if not any(one.conversation for one in invocations):
        gaps.append(ObservationGap(code="conversation_unavailable"))
    return TrajectoryRecord(
        task_id=task_id,
        rollout_id=rollout_id,
        invocations=invocations,
        turns=sorted(trajectory.turns, key=lambda turn: (turn.timestamp, turn.invocation_id, turn.turn_no)),
        model_calls=model_calls,
        tool_calls=_merge_tool_calls(trajectory.tool_calls, tool_calls, invocations),
        gaps=drop_duplicate_gaps(gaps),
    )


def is_redacted(result: Mapping[str, Any]) -> bool:
    """Return whether the agent took pictures out of its history, so that requests must not bring them back."""
    gaps = [gap for key in OBSERVED_KEYS for gap in as_list(as_mapping(result.get(key)).get("gaps"))]
    return any(as_mapping(gap).get("code") == REDACTED for gap in gaps)


def _find_identity(row: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[str, str]:
    task_id = task_id_from_run_body(row) or task_id_from_run_body(result)
    captured = as_mapping(result.get(MODEL_CALL_CAPTURE_KEY)).get("rollout_id")
    rollout_id = maybe_rollout_id_from_run_body(row) or captured or maybe_rollout_id_from_run_body(result)
    if task_id is None or rollout_id is None:
        raise ValueError("the row names no task or no rollout")
    return task_id, str(rollout_id)


# --- what the agent reported ------------------------------------------------------------------------------------------


def _read_agent_trajectory(given: Any, task_id: str, rollout_id: str) -> TrajectoryRecord:
    """Return the trajectory that the agent put into its result, with the ids of the row."""
    actual = {"task_id": task_id, "rollout_id": rollout_id}
    if given is None:
        return TrajectoryRecord(**actual)
    reported = dict(as_mapping(given))
    turns = [dict(as_mapping(turn)) for turn in as_list(reported.get("turns"))]
    other = [name for name in _IDENTITY if any(one.get(name) not in (None, actual[name]) for one in (reported, *turns))]
    if other:
        reported.update(actual)
        reported["turns"] = [{**turn, **actual} for turn in turns]
    try:
        trajectory = TrajectoryRecord.model_validate(reported)
    except ValidationError as error:
        gap = ObservationGap(code="producer_trajectory_invalid", detail=_describe_first_problem(error))
        return TrajectoryRecord(**actual, gaps=[gap])
    if other:
        gap = ObservationGap(code="producer_trajectory_identity_mismatch", detail=",".join(other))
        trajectory.gaps = [*trajectory.gaps, gap]
    return trajectory


def _merge_tool_calls(
    reported: list[TrajectoryToolCall], observed: list[ToolCallObservation], invocations: list[AgentInvocation]
) -> list[TrajectoryToolCall]:
    """Return the tool calls that the agent reported and observed, each with what its conversation says it returned."""
    outputs = {
        (invocation.invocation_id, getattr(item, "call_id", None)): getattr(item, "output", None)
        for invocation in invocations
        for item in invocation.conversation
        if getattr(item, "type", None) == "function_call_output"
    }
    merged = _merge(reported, [TrajectoryToolCall(**dict(one)) for one in observed], _get_tool_call_key)
    for call in merged:
        if call.output is None and _get_tool_call_key(call) in outputs:
            call.output = to_jsonable_python(outputs[_get_tool_call_key(call)])
    return merged


def _get_tool_call_key(call: ToolCallObservation) -> tuple[str, str]:
    return call.invocation_id, call.tool_call_id


# --- what was captured ------------------------------------------------------------------------------------------------


def _list_captured_calls(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = as_list(as_mapping(result.get(MODEL_CALL_CAPTURE_KEY)).get("calls"))
    return [call for call in calls if isinstance(call, dict)]


def _build_model_call(call: Mapping[str, Any], *, with_payloads: bool) -> TrajectoryModelCall:
    payloads = {}
    metadata = {name: call.get(name) for name in _METADATA}
    if metadata["response_status"] is None:
        metadata["response_status"] = as_text(as_mapping(call.get("response")).get("status"))
    if with_payloads:
        for name in ("request", "response"):
            payloads[name] = call.get(name)
            if payloads[name] is None:
                payloads[name] = call.get(f"{name}_raw")
    return TrajectoryModelCall(
        model_call_id=call.get("model_call_id"),
        started_at=call.get("started_at"),
        completed_at=call.get("completed_at"),
        duration_ms=call.get("latency_total_ms"),
        response_metadata=TrajectoryResponseMetadata(**metadata),
        token_stats=TrajectoryTokenStats(**{name: call.get(ours) for name, ours in _TOKEN_STATS.items()}),
        **payloads,
    )


# --- one of two -------------------------------------------------------------------------------------------------------


def _merge(first: Iterable[ModelT], second: Iterable[ModelT], key: Any) -> list[ModelT]:
    """Return all of `first` and `second`; two with the same key become one, with the fields of both."""
    merged = list(first)
    places = {key(one): place for place, one in enumerate(merged) if key(one) is not None}
    for one in second:
        place = places.get(key(one))
        if place is not None:
            merged[place] = _combine(merged[place], one)
            continue
        if key(one) is not None:
            places[key(one)] = len(merged)
        merged.append(one)
    return merged


def _combine(first: ModelT, second: ModelT) -> ModelT:
    known = {name: value for name, value in second if value not in (None, "unknown", [])}
    for name, value in known.items():
        before = getattr(first, name)
        if isinstance(value, ObservationModel) and isinstance(before, ObservationModel):
            known[name] = _combine(before, value)
    return first.model_copy(update=known)


# --- as JSON ----------------------------------------------------------------------------------------------------------


def _dump_trajectory(trajectory: TrajectoryRecord) -> dict[str, Any]:
    bulk = {"request", "response"}
    dumped = trajectory.model_dump(mode="json", exclude={"model_calls": {"__all__": bulk}})
    for call, row in zip(trajectory.model_calls, dumped["model_calls"], strict=True):
        # Captured JSON, which may be large: it is passed on, not copied.
        row["request"] = call.request
        row["response"] = call.response
    return dumped


def _note_failure(row: Mapping[str, Any], result: dict[str, Any], error: Exception) -> None:
    """Note that there is no trajectory: on the capture, else on the observations, else on a bare trajectory."""
    gap = {"code": "trajectory_projection_failed", "detail": type(error).__name__}
    for key in (MODEL_CALL_CAPTURE_KEY, AGENT_OBSERVATIONS_KEY):
        holder = result.get(key)
        if isinstance(holder, dict):
            result[key] = {**holder, "gaps": [*as_list(holder.get("gaps")), gap]}
            return
    try:
        task_id, rollout_id = _find_identity(row, result)
    except ValueError:
        task_id = rollout_id = "unknown"
    bare = TrajectoryRecord(task_id=task_id, rollout_id=rollout_id, gaps=[ObservationGap(**gap)])
    result[TRAJECTORY_KEY] = bare.model_dump(mode="json")


def _describe_first_problem(error: ValidationError) -> str:
    """Say where the first problem is, without the values: they may be long or secret."""
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'value'}: {problem['msg']}"
