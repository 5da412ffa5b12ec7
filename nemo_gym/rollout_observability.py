# SPDX-License-Identifier: Apache-2.0
"""What an agent can report about a rollout besides its final answer, and the trajectory in a result row.

Every model forbids unknown fields. `nemo_gym.model_call_capture` captures model calls; observations refer to them by
`ModelCallRef`, and `join_model_call_observations` resolves these references. `nemo_gym._rollouts.rollout_trajectory`
builds the trajectory of a row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseInputItem

if TYPE_CHECKING:
    from nemo_gym._training.capture.call_records import ModelCallRecord

UNMATCHED = "model_call_reference_unmatched"
AMBIGUOUS = "model_call_reference_ambiguous"
CONFLICT = "model_call_reference_conflict"
OWNERSHIP_UNAVAILABLE = "model_call_ownership_unavailable"
_JOIN_GAPS = frozenset({UNMATCHED, AMBIGUOUS, CONFLICT, OWNERSHIP_UNAVAILABLE})


class ObservationModel(BaseModel):
    """Base class of all observations. Times are Unix times in seconds."""

    # `model_calls` and the like are fields, not pydantic names.
    model_config = ConfigDict(extra="forbid", validate_assignment=True, protected_namespaces=())


class ModelCallRef(ObservationModel):
    """A model call, identified by its captured id, or by the model server and the response id."""

    model_call_id: str | None = None
    model_ref: ModelServerRef | None = None
    response_id: str | None = None

    @model_validator(mode="after")
    def _require_identity(self) -> Self:
        if self.model_call_id is None and (self.model_ref is None or self.response_id is None):
            raise ValueError("a model call is identified by model_call_id or both model_ref and response_id")
        return self


class AgentInvocation(ObservationModel):
    """One run of an agent: the outermost one, or a sub-agent that another invocation started."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    """The tool call through which the parent started this invocation."""
    status: Literal["completed", "failed", "incomplete", "unknown"] = "unknown"
    duration_ms: NonNegativeFloat | None = None
    error_type: str | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    conversation: list[NeMoGymResponseInputItem] = Field(default_factory=list)
    """Prompts, replies and tool results, in order."""


class ToolCallObservation(ObservationModel):
    """One tool call as the agent executed it."""

    kind: Literal["tool_call"] = "tool_call"
    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: NonNegativeFloat | None = None
    timing_source: Literal["executor", "artifact", "harness"] | None = None
    """Who measured it: what ran the tool, a file it left, or the harness around it."""
    status: Literal["completed", "failed", "timeout", "cancelled", "incomplete", "unknown"] = "unknown"
    error_type: str | None = None

    @model_validator(mode="after")
    def _require_order_of_times(self) -> Self:
        if self.started_at is not None and self.completed_at is not None and self.completed_at < self.started_at:
            raise ValueError(f"completed_at {self.completed_at} is before started_at {self.started_at}")
        return self


class SandboxObservation(ObservationModel):
    """A sandbox that the rollout used."""

    kind: Literal["sandbox"] = "sandbox"
    role: Literal["agent", "verifier", "environment"]
    provider: str | None = None
    sandbox_id: str | None = None
    outcome: Literal["completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"] = "unknown"
    exit_code: int | None = None
    wall_time_s: NonNegativeFloat | None = None
    cpu_time_s: NonNegativeFloat | None = None
    peak_memory_mib: NonNegativeFloat | None = None
    resource_usage_source: str | None = None
    error_type: str | None = None


class ContextCompactionObservation(ObservationModel):
    """The agent shortened its context, so later model calls do not continue earlier ones token by token."""

    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: str
    observed_at: float | None = None
    trigger: str | None = None
    """What triggered it, e.g. `auto` or `manual`."""
    tokens_before: NonNegativeInt | None = None
    tokens_after: NonNegativeInt | None = None
    outcome: Literal["completed", "failed", "aborted", "unknown"] = "unknown"
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: ModelCallRef | None = None
    """The last call with the whole context."""
    after_model_call: ModelCallRef | None = None
    """The first call with the shortened context."""
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    """The calls that wrote the summary."""


AgentObservationRecord = Annotated[
    AgentInvocation | ToolCallObservation | SandboxObservation | ContextCompactionObservation,
    Field(discriminator="kind"),
]


class ObservationGap(ObservationModel):
    """Something that should have been observed and was not."""

    code: str
    invocation_id: str | None = None
    detail: str | None = None


class AgentObservationBundle(ObservationModel):
    """Everything one source observed about one rollout: `ng_agent_observations` in a result row."""

    source: str
    """Who observed it: the name of the agent or of its harness."""
    records: list[AgentObservationRecord] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _require_tree_of_invocations(self) -> Self:
        invocations = [record for record in self.records if isinstance(record, AgentInvocation)]
        _refuse_duplicates("invocation_id", (one.invocation_id for one in invocations))
        parents = {one.invocation_id: one.parent_invocation_id for one in invocations}
        for start in parents:
            seen = {start}
            current = parents[start]
            while current is not None:
                if current in seen:
                    raise ValueError(f"parent_invocation_id must not form a cycle, as from {start!r} back to itself")
                seen.add(current)
                current = parents.get(current)
        return self


@dataclass(frozen=True)
class AgentEpisode:
    """What an agent returns: its response, and what it observed along the way."""

    response: NeMoGymResponse
    observations: AgentObservationBundle


# --- the trajectory of a row ------------------------------------------------------------------------------------------


class TrajectoryTokenStats(ObservationModel):
    """The tokens of one model call, as the model reported them."""

    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    reasoning_tokens: NonNegativeInt | None = None
    total_tokens: NonNegativeInt | None = None
    cached_tokens: NonNegativeInt | None = None


class TrajectoryResponseMetadata(ObservationModel):
    """How one model call was answered."""

    response_id: str | None = None
    model_ref: ModelServerRef | None = None
    model: str | None = None
    dialect: str | None = None
    status_code: int | None = None
    response_status: str | None = None
    finish_reason: str | None = None
    error_category: str | None = None
    latency_ttft_ms: NonNegativeFloat | None = None


class TrajectoryModelCall(ObservationModel):
    """One model call with its request and its response."""

    model_call_id: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: NonNegativeFloat | None = None
    request: Any = None
    response: Any = None
    response_metadata: TrajectoryResponseMetadata = Field(default_factory=TrajectoryResponseMetadata)
    token_stats: TrajectoryTokenStats = Field(default_factory=TrajectoryTokenStats)


class TrajectoryTurn(ObservationModel):
    """One question to an agent and its answer, however many model calls it took."""

    invocation_id: str
    task_id: str
    rollout_id: str
    turn_no: PositiveInt
    timestamp: float
    question: Any = None
    answer: Any = None
    reasoning_content: Any = None
    resolved: bool | None = None
    step_count: NonNegativeInt
    model_calls: list[ModelCallRef] = Field(default_factory=list)


class TrajectoryToolCall(ToolCallObservation):
    """One tool call and what it returned."""

    output: Any = None


class TrajectoryRecord(ObservationModel):
    """A rollout as stored in a result row under `ng_trajectory`."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: str
    rollout_id: str
    invocations: list[AgentInvocation] = Field(default_factory=list)
    turns: list[TrajectoryTurn] = Field(default_factory=list)
    model_calls: list[TrajectoryModelCall] = Field(default_factory=list)
    tool_calls: list[TrajectoryToolCall] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @model_validator(mode="after")
    def _require_one_rollout(self) -> Self:
        _refuse_duplicates("invocation_id", (one.invocation_id for one in self.invocations))
        _refuse_duplicates("model_call_id", (one.model_call_id for one in self.model_calls if one.model_call_id))
        _refuse_duplicates("(invocation_id, turn_no)", ((turn.invocation_id, turn.turn_no) for turn in self.turns))
        for turn in self.turns:
            if (turn.task_id, turn.rollout_id) != (self.task_id, self.rollout_id):
                raise ValueError(
                    f"turn {turn.turn_no} is of task {turn.task_id!r}, rollout {turn.rollout_id!r}, the trajectory of "
                    f"task {self.task_id!r}, rollout {self.rollout_id!r}"
                )
        return self


def _refuse_duplicates(name: str, values: Iterable[Any]) -> None:
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{name} must be unique: {value!r} occurs twice")
        seen.add(value)


# --- observations and captured calls ----------------------------------------------------------------------------------


def join_model_call_observations(
    bundle: AgentObservationBundle, calls: "Sequence[ModelCallRecord]"
) -> AgentObservationBundle:
    """Return a copy of `bundle` whose references identify the captured `calls` in full; note a gap where that fails.

    The gaps of an earlier join are replaced.
    """
    joined = bundle.model_copy(deep=True)
    join = _Join(calls)
    for record in joined.records:
        if isinstance(record, AgentInvocation):
            record.model_calls = [join.claim(ref, record.invocation_id) for ref in record.model_calls]
    for record in joined.records:
        if isinstance(record, ContextCompactionObservation):
            join.resolve_compaction(record)
    join.note_calls_without_owner()
    joined.gaps = drop_duplicate_gaps([*(gap for gap in bundle.gaps if gap.code not in _JOIN_GAPS), *join.gaps])
    return joined


def drop_duplicate_gaps(gaps: Iterable[ObservationGap]) -> list[ObservationGap]:
    """Return `gaps` in order, without duplicates."""
    return list({(gap.code, gap.invocation_id, gap.detail): gap for gap in gaps}.values())


class _Join:
    """Finds the calls that references mean, and tracks which invocation made which call."""

    def __init__(self, calls: "Sequence[ModelCallRecord]") -> None:
        self._calls = calls
        self._by_id: dict[Any, list[int]] = {}
        for place, call in enumerate(calls):
            response_key = None
            if call.model_ref is not None and call.response_id is not None:
                response_key = (call.model_ref.type, call.model_ref.name, call.response_id)
            for key in (call.model_call_id, response_key):
                if key is not None:
                    self._by_id.setdefault(key, []).append(place)
        self._owners: dict[int, str] = {}
        self.gaps: list[ObservationGap] = []

    def claim(self, ref: ModelCallRef, invocation_id: str) -> ModelCallRef:
        """Record that the invocation made the call that `ref` means."""
        place = self._find(ref, invocation_id)
        if place is None:
            return ref
        if place in self._owners:
            self._note_gap(CONFLICT, invocation_id, ref)
            return ref
        self._owners[place] = invocation_id
        return self._build_reference(place)

    def resolve_compaction(self, record: ContextCompactionObservation) -> None:
        """Resolve the calls of a compaction: its own must be its invocation's; its neighbors must not be another's."""
        owner = record.invocation_id
        record.model_calls = [
            self._resolve(ref, owner, "model_calls:", must_be_owned=True) for ref in record.model_calls
        ]
        if record.before_model_call is not None:
            record.before_model_call = self._resolve(record.before_model_call, owner, "before_model_call:")
        if record.after_model_call is not None:
            record.after_model_call = self._resolve(record.after_model_call, owner, "after_model_call:")

    def note_calls_without_owner(self) -> None:
        for place, call in enumerate(self._calls):
            if place not in self._owners:
                name = call.model_call_id or call.response_id or "unknown"
                detail = f"capture:{name}:call_index={call.call_index}"
                self.gaps.append(ObservationGap(code=OWNERSHIP_UNAVAILABLE, detail=detail))

    def _resolve(self, ref: ModelCallRef, owner: str, role: str, *, must_be_owned: bool = False) -> ModelCallRef:
        place = self._find(ref, owner, role)
        if place is None:
            return ref
        actual = self._owners.get(place)
        if actual is None and must_be_owned:
            self._note_gap(OWNERSHIP_UNAVAILABLE, owner, ref, role)
        elif actual is not None and actual != owner:
            self._note_gap(CONFLICT, owner, ref, role)
        else:
            return self._build_reference(place)
        return ref

    def _find(self, ref: ModelCallRef, invocation_id: str, role: str = "") -> int | None:
        """Return the index of the one call that `ref` means; note a gap if there is none or more than one."""
        key: Any = ref.model_call_id
        if key is None and ref.model_ref is not None:
            key = (ref.model_ref.type, ref.model_ref.name, ref.response_id)
        places = list[int]()
        for place in self._by_id.get(key, ()):
            call = self._calls[place]
            if ref.model_ref in (None, call.model_ref) and ref.response_id in (None, call.response_id):
                places.append(place)
        if len(places) == 1:
            return places[0]
        self._note_gap(AMBIGUOUS if places else UNMATCHED, invocation_id, ref, role)
        return None

    def _note_gap(self, code: str, invocation_id: str, ref: ModelCallRef, role: str = "") -> None:
        detail = f"{role}{ref.model_call_id or ref.response_id}"
        self.gaps.append(ObservationGap(code=code, invocation_id=invocation_id, detail=detail))

    def _build_reference(self, place: int) -> ModelCallRef:
        call = self._calls[place]
        return ModelCallRef(model_call_id=call.model_call_id, model_ref=call.model_ref, response_id=call.response_id)
