# SPDX-License-Identifier: Apache-2.0
"""One exchange with a model endpoint, and all exchanges of one rollout with what is known to be missing.

Requests and responses are kept as the JSON that crossed the wire; headers are never part of a record.
"""

from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

Dialect = Literal["responses", "chat_completions", "messages"]

DIALECT_OF_PATH: dict[str, Dialect] = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat_completions",
    "/v1/messages": "messages",
}


def new_model_call_id() -> str:
    return f"mc_{uuid4().hex}"


class ModelCallRecord(BaseModel):
    """One call to a model endpoint. Fields that another version wrote are kept."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    model_call_id: str = Field(default_factory=new_model_call_id)
    """Unique across rollouts and servers."""
    rollout_id: str | None = None
    dialect: Dialect = "responses"
    """Which of the three model endpoints was called."""
    model_ref: dict[str, Any] | str | None = None
    """The model server that answered, as `{type, name}`."""
    started_at: float | None = None
    """Unix time in seconds at which the request arrived."""
    completed_at: float | None = None
    """Unix time in seconds at which the last byte of the response was ready."""
    latency_ms: float | None = None
    latency_ttft_ms: float | None = None
    """From the arrival of the request to the first byte of the response body."""
    status_code: int | None = None
    """None if no response was started."""
    error_category: str | None = None
    """None for a success; otherwise see `nemo_gym._capture.asgi.error_category_of`."""
    request: Any = None
    response: Any = None
    """Parsed JSON; the text of the stream for server-sent events."""

    @property
    def failed(self) -> bool:
        return self.error_category is not None


@dataclass(frozen=True)
class CaptureGap:
    """Something that should be in a capture and is not."""

    code: str
    detail: str | None = None
    model_call_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"code": self.code, "detail": self.detail, "model_call_id": self.model_call_id}


@dataclass(frozen=True)
class RolloutCapture:
    """All calls of one rollout, in the order in which they started."""

    rollout_id: str
    calls: list[ModelCallRecord] = field(default_factory=list)
    gaps: list[CaptureGap] = field(default_factory=list)
