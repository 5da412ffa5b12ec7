# SPDX-License-Identifier: Apache-2.0
"""What an agent can tell about a rollout beyond its final answer, and the trajectory record that a result row carries.

Only shapes, all of which refuse unknown fields. Model calls are captured by `nemo_gym.model_call_capture`; what is
here refers to them by id.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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
