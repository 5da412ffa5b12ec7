# SPDX-License-Identifier: Apache-2.0
"""One session of the gateway and its calls, as stored and as reported.

Bodies are kept as raw bytes and parsed on demand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import orjson
from pydantic import BaseModel

from nemo_gym._servers.policy_versions.marks import pick_marks
from nemo_gym._training.alignment import Turn, join_turns
from nemo_gym._training.capture.call_records import Dialect, build_model_call_record, list_answer_items
from nemo_gym._training.record import TrainableRollout, collect_turns
from nemo_gym._util.json_shapes import as_mapping
from nemo_gym._wire.schema.tokens import ALL_TOKEN_FIELDS

_MESSAGES_FIELD = {"responses": "input", "chat": "messages", "messages": "messages"}

Status = Literal["open", "done", "failed"]


@dataclass(frozen=True)
class SessionLabels:
    """A trainer's labels for a session."""

    task_index: int = 0
    rollout_index: int = 0
    agent: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SessionCall:
    """One call of a model."""

    dialect: Dialect
    started_at: float
    call_id: str = field(default_factory=lambda: uuid4().hex)
    completed_at: float | None = None
    request: bytes = b""
    answer: bytes | None = None
    error: str | None = None
    """Why the agent got no answer; None if it did."""

    def note_answer(self, answer: Any) -> None:
        """Keep the model's answer, tokens included, before it becomes a stream or another dialect."""
        body = getattr(answer, "body", None)  # of a response that a handler built itself
        if isinstance(answer, BaseModel):
            self.answer = answer.model_dump_json().encode()
        elif isinstance(body, bytes):
            self.answer = body
        else:
            self.answer = orjson.dumps(answer, default=str)

    @property
    def size_bytes(self) -> int:
        return len(self.request) + len(self.answer or b"")

    def read_turns(self) -> tuple[list[Turn], str | None]:
        """Return the turns of the answer, and why its tokens cannot be used, if so."""
        if self.error is not None:
            return [], None
        answer = as_mapping(_parse(self.answer))
        around = {**answer, "model_call_id": self.call_id}
        return collect_turns(((item, around) for item in list_answer_items(answer)), "session")

    def to_trace(self, place: int) -> dict[str, Any]:
        """Return the call as trainers fetch it."""
        request = dict(as_mapping(_parse(self.request)))
        answer = as_mapping(_parse(self.answer))
        record = build_model_call_record({"request": request, "response": answer}, call_index=place)
        messages = request.pop(_MESSAGES_FIELD[self.dialect], None)
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        response: dict[str, Any] | None = dict(answer) or None
        turn = None
        turns, _ = self.read_turns()
        if len(turns) == 1:
            turn = turns[0]
            response = _without_tokens(answer)
        return {
            "call_id": self.call_id,
            "dialect": self.dialect,
            "started_at": self.started_at,
            "completed_at": self.completed_at,
            "error": self.error,
            "model": record.model,
            "finish_reason": record.finish_reason,
            "messages": messages,
            "params": request,
            "response": response,
            "prompt_token_ids": turn and turn.prompt_ids,
            "completion_token_ids": turn and turn.generated_ids,
            "logprobs": turn and turn.log_probs,
            "policy_version": None,
            **pick_marks(answer),
        }


def _parse(raw: bytes | None) -> Any:
    try:
        return orjson.loads(raw) if raw else None
    except orjson.JSONDecodeError:
        return None


def _without_tokens(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer without the arrays that are stored elsewhere."""

    def strip(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        kept = {name: value for name, value in part.items() if name not in ALL_TOKEN_FIELDS}
        if "message" in kept:
            kept["message"] = strip(kept["message"])
        return kept

    lists = ((name, answer.get(name)) for name in ("output", "choices"))
    return {**answer, **{name: [strip(part) for part in parts] for name, parts in lists if isinstance(parts, list)}}


@dataclass(slots=True)
class GatewaySession:
    """One rollout that another program runs."""

    id: str
    key: str
    labels: SessionLabels
    number: int
    created_at: float
    began_s: float
    used_s: float
    calls: list[SessionCall] = field(default_factory=list)
    under_way: int = 0
    reward: float | None = None
    """The reward set last; it counts once the session is done."""
    components: dict[str, float] = field(default_factory=dict)
    failure: tuple[str, str] | None = None
    """Its kind, and what happened."""
    ended_at: float | None = None
    ended_s: float = 0.0
    end_number: int | None = None
    lost_calls: int = 0
    """Calls that were still running when it ended; they are not part of it."""
    was_fetched: bool = False

    @property
    def status(self) -> Status:
        if self.failure is not None:
            return "failed"
        return "open" if self.ended_at is None else "done"

    def to_rollout(self) -> TrainableRollout:
        """Return the canonical trainable rollout; only a session that is done has a reward."""
        rollout = TrainableRollout(
            self.labels.task_index,
            self.labels.rollout_index,
            agent=self.labels.agent,
            rollout_id=self.id,
        )
        if self.failure is not None:
            rollout.failure = self.failure[0]
        if self.status == "done":
            rollout.reward = self.reward
            rollout.reward_components = self.components
        without = 0
        for call in self.calls:
            turns, problem = call.read_turns()
            rollout.turns += turns
            rollout.invalid = rollout.invalid or problem
            without += call.error is None and not turns
        if rollout.turns and without:
            rollout.invalid = rollout.invalid or f"{without} of {len(self.calls)} calls have no tokens"
        rollout.branches = join_turns(rollout.turns)
        if not any(turn.policy_versions for turn in rollout.turns):
            versions = [version for call in self.calls for version in pick_marks(_parse(call.answer)).values()]
            if versions:
                rollout.row_versions = (versions[0], versions[-1])
        return rollout

    def to_json(self, *, with_traces: bool) -> dict[str, Any]:
        """Return a session as reported: in full, or as listed."""
        told: dict[str, Any] = {
            "id": self.id,
            "status": self.status,
            "task_index": self.labels.task_index,
            "rollout_index": self.labels.rollout_index,
            "agent": self.labels.agent,
            "metadata": self.labels.metadata,
            "created_at": self.created_at,
            "ended_at": self.ended_at,
            "reward": self.reward,
            "components": self.components,
            "failure": None,
            "calls": len(self.calls),
            "calls_under_way": self.under_way,
            "lost_calls": self.lost_calls,
            "cursor": self.number if self.end_number is None else self.end_number,
        }
        if self.failure is not None:
            kind, message = self.failure
            told |= {"reward": None, "components": {}, "failure": {"kind": kind, "message": message}}
        if with_traces:
            ended = [call for call in self.calls if call.completed_at is not None]
            told["traces"] = [call.to_trace(place) for place, call in enumerate(ended)]
            told["rollout"] = None if self.status == "open" else self.to_rollout().to_json()
        return told
