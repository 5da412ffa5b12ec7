# SPDX-License-Identifier: Apache-2.0
"""What an agent can tell about a rollout beyond its final answer, and the trajectory record that a result row carries.

The shapes refuse unknown fields. Model calls are captured by `nemo_gym.model_call_capture`; what is here refers to them
by id. Who puts a trajectory into a row is `nemo_gym.rollout_observer`.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym._capture.metrics import MODEL_CALL_CAPTURE_KEY
from nemo_gym._capture.payloads import answer_id, tool_call_ids
from nemo_gym._util.keys import AGENT_REF_KEY_NAME, NG_FAILURE_CLASS_KEY, RESPONSE_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body

AGENT_OBSERVATIONS_KEY = "ng_agent_observations"
TRAJECTORY_KEY = "ng_trajectory"

ObservationStatus = Literal["completed", "failed", "cancelled", "timed_out", "unknown"]


class _Observed(BaseModel):
    # `model_calls` and the like are fields here, not pydantic's own names.
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ModelCallRef(_Observed):
    """A captured model call, by id."""

    model_call_id: str
    invocation_id: str | None = None
    """The invocation that made the call."""
    dialect: Literal["responses", "chat_completions", "messages"] | None = None
    response_id: str | None = None
    """The id that the model gave its own answer."""
    started_at: float | None = None
    completed_at: float | None = None
    status_code: int | None = None
    error_category: str | None = None


class AgentInvocation(_Observed):
    """One run of an agent: the outermost one, or a sub-agent that another invocation started."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    parent_tool_call_id: str | None = None
    """The tool call through which the parent started this invocation."""
    agent_name: str | None = None
    agent_type: str | None = None
    agent_version: str | None = None
    session_id: str | None = None
    status: ObservationStatus | None = None
    started_at: float | None = None
    """Unix time in seconds, as all times here."""
    completed_at: float | None = None
    stop_reason: str | None = None
    error: str | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)


class ToolCallObservation(_Observed):
    """One tool call as the agent carried it out."""

    kind: Literal["tool_call"] = "tool_call"
    tool_call_id: str | None = None
    invocation_id: str | None = None
    tool_name: str | None = None
    arguments: Any = None
    output: Any = None
    status: ObservationStatus | None = None
    error: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    latency_ms: float | None = None
    model_call: ModelCallRef | None = None
    """The model call that asked for it."""
    metadata: dict[str, Any] = Field(default_factory=dict)


class ContextCompactionObservation(_Observed):
    """The agent shortened its context, so that later model calls do not continue earlier ones token by token."""

    kind: Literal["context_compaction"] = "context_compaction"
    compaction_id: str | None = None
    invocation_id: str | None = None
    trigger: str | None = None
    """What set it off, e.g. `auto` or `manual`."""
    tokens_before: int | None = None
    tokens_after: int | None = None
    summary: str | None = None
    occurred_at: float | None = None
    model_call: ModelCallRef | None = None
    """The model call that wrote the summary."""
    metadata: dict[str, Any] = Field(default_factory=dict)


class SandboxObservation(_Observed):
    """A sandbox that the rollout used."""

    kind: Literal["sandbox"] = "sandbox"
    sandbox_id: str | None = None
    invocation_id: str | None = None
    provider: str | None = None
    image: str | None = None
    status: ObservationStatus | None = None
    started_at: float | None = None
    completed_at: float | None = None
    exit_code: int | None = None
    error: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


AgentObservation = Annotated[
    AgentInvocation | ToolCallObservation | ContextCompactionObservation | SandboxObservation,
    Field(discriminator="kind"),
]


class ObservationGap(_Observed):
    """Something that should have been observed and was not."""

    code: str
    invocation_id: str | None = None
    detail: str | None = None


class AgentObservationBundle(_Observed):
    """Everything one source observed of one rollout."""

    source: str
    """Who observed: the name of the agent or of its harness."""
    records: list[AgentObservation] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)


class AgentEpisode(_Observed):
    """What an agent hands back: its response, and what it observed on the way."""

    response: Any
    observations: AgentObservationBundle | None = None

    def __init__(self, response: Any, observations: AgentObservationBundle | None = None, **fields: Any) -> None:
        super().__init__(**{"response": response, "observations": observations, **fields})


class TrajectoryTurn(_Observed):
    """One model call and the tool calls that it asked for."""

    turn_index: int
    invocation_id: str | None = None
    model_call_id: str | None = None
    tool_call_ids: list[str] = Field(default_factory=list)
    started_at: float | None = None
    completed_at: float | None = None


class TrajectoryToolCall(_Observed):
    """One tool call of a trajectory."""

    tool_call_id: str | None = None
    invocation_id: str | None = None
    model_call_id: str | None = None
    """The model call that asked for it."""
    tool_name: str | None = None
    arguments: Any = None
    output: Any = None
    status: ObservationStatus | None = None
    error: str | None = None
    started_at: float | None = None
    completed_at: float | None = None


class TrajectoryRecord(_Observed):
    """A rollout as a result row tells it under `ng_trajectory`."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: str | None = None
    rollout_id: str | None = None
    invocations: list[AgentInvocation] = Field(default_factory=list)
    turns: list[TrajectoryTurn] = Field(default_factory=list)
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    tool_calls: list[TrajectoryToolCall] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)


# --- from a result row to its trajectory ------------------------------------------------------------------------------


def trajectory_from_record(record: Mapping[str, Any]) -> TrajectoryRecord:
    """The trajectory of a result row: its captured model calls, what its agent observed, and its response.

    An agent that observed nothing is one invocation that made every call. What cannot be told is a gap.
    """
    capture = record.get(MODEL_CALL_CAPTURE_KEY) or {}
    calls: list[Mapping[str, Any]] = capture.get("calls") or []
    observed = _observed(record.get(AGENT_OBSERVATIONS_KEY))
    invocations = [one for one in observed.records if isinstance(one, AgentInvocation)]
    if not invocations:
        invocations = [_whole_rollout(record, calls)]
    model_calls = _model_calls(calls, invocations)
    gaps = [ObservationGap(code=gap["code"], detail=gap.get("detail")) for gap in capture.get("gaps") or ()]
    if not model_calls:
        gaps.append(ObservationGap(code="no_model_calls", detail="no model call was captured for this rollout"))
    task = record.get(TASK_INDEX_KEY_NAME)
    return TrajectoryRecord(
        task_id=None if task is None else str(task),
        rollout_id=maybe_rollout_id_from_run_body(record),
        invocations=invocations,
        turns=_turns(calls, model_calls),
        model_calls=model_calls,
        tool_calls=_tool_calls(record, calls, observed.records),
        gaps=[*gaps, *observed.gaps],
    )


def _observed(given: Any) -> AgentObservationBundle:
    """Everything that the bundles of a row hold, in one; a bundle that is none becomes a gap."""
    merged = AgentObservationBundle(source=AGENT_OBSERVATIONS_KEY)
    for number, bundle in enumerate(given if isinstance(given, list) else [given] if given else []):
        try:
            parsed = AgentObservationBundle.model_validate(bundle)
        except ValidationError as error:
            detail = f"{AGENT_OBSERVATIONS_KEY}[{number}]: {error.error_count()} fields do not fit"
            merged.gaps.append(ObservationGap(code="invalid_observations", detail=detail))
        else:
            merged.records += parsed.records
            merged.gaps += parsed.gaps
    return merged


def _whole_rollout(record: Mapping[str, Any], calls: list[Mapping[str, Any]]) -> AgentInvocation:
    agent = record.get(AGENT_REF_KEY_NAME)
    agent = agent if isinstance(agent, dict) else {}
    failed = bool(record.get(NG_FAILURE_CLASS_KEY)) or RESPONSE_KEY_NAME not in record
    return AgentInvocation(
        invocation_id=maybe_rollout_id_from_run_body(record) or "0",
        agent_name=agent.get("name"),
        agent_type=agent.get("type"),
        status="failed" if failed else "completed",
        started_at=calls[0].get("started_at") if calls else None,
        completed_at=calls[-1].get("completed_at") if calls else None,
        model_calls=[ModelCallRef(model_call_id=call["model_call_id"]) for call in calls],
    )


def _model_calls(calls: list[Mapping[str, Any]], invocations: list[AgentInvocation]) -> list[ModelCallRef]:
    """The captured calls, each with the invocation that says it made it; then those that were observed only."""
    only = invocations[0].invocation_id if len(invocations) == 1 else None
    claimed = {ref.model_call_id: (one.invocation_id, ref) for one in invocations for ref in one.model_calls}
    captured = [
        ModelCallRef(
            model_call_id=call["model_call_id"],
            invocation_id=claimed[call["model_call_id"]][0] if call["model_call_id"] in claimed else only,
            dialect=call.get("dialect"),
            response_id=answer_id(call.get("response")),
            started_at=call.get("started_at"),
            completed_at=call.get("completed_at"),
            status_code=call.get("status_code"),
            error_category=call.get("error_category"),
        )
        for call in calls
    ]
    known = {ref.model_call_id for ref in captured}
    others = [ref.model_copy(update={"invocation_id": by}) for by, ref in claimed.values()]
    return [*captured, *(ref for ref in others if ref.model_call_id not in known)]


def _turns(calls: list[Mapping[str, Any]], model_calls: list[ModelCallRef]) -> list[TrajectoryTurn]:
    asked = {call["model_call_id"]: tool_call_ids(call.get("response")) for call in calls}
    return [
        TrajectoryTurn(
            turn_index=index,
            invocation_id=ref.invocation_id,
            model_call_id=ref.model_call_id,
            tool_call_ids=asked.get(ref.model_call_id, []),
            started_at=ref.started_at,
            completed_at=ref.completed_at,
        )
        for index, ref in enumerate(model_calls)
    ]


def _tool_calls(
    record: Mapping[str, Any], calls: list[Mapping[str, Any]], observed: Iterable[AgentObservation]
) -> list[TrajectoryToolCall]:
    """What the agent saw of its tool calls; those that it did not observe, as its response tells them."""
    asked_by = {call_id: call["model_call_id"] for call in calls for call_id in tool_call_ids(call.get("response"))}
    found: list[TrajectoryToolCall] = []
    for one in observed:
        if isinstance(one, ToolCallObservation):
            shared = one.model_dump(include=set(TrajectoryToolCall.model_fields))
            asker = one.model_call.model_call_id if one.model_call else asked_by.get(one.tool_call_id or "")
            found.append(TrajectoryToolCall(**shared, model_call_id=asker))
    known = {one.tool_call_id for one in found}
    output = _output_items(record.get(RESPONSE_KEY_NAME))
    results = {item.get("call_id"): item for item in output if item.get("type") == "function_call_output"}
    for item in output:
        if item.get("type") == "function_call" and item.get("call_id") not in known:
            result = results.get(item.get("call_id"))
            found.append(
                TrajectoryToolCall(
                    tool_call_id=item.get("call_id"),
                    model_call_id=asked_by.get(item.get("call_id") or ""),
                    tool_name=item.get("name"),
                    arguments=item.get("arguments"),
                    output=None if result is None else result.get("output"),
                    status="unknown" if result is None else "completed",
                )
            )
    return found


def _output_items(response: Any) -> list[dict[str, Any]]:
    output = response.get("output") if isinstance(response, dict) else None
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
