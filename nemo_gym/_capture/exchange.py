# SPDX-License-Identifier: Apache-2.0
"""One request to a model and its response while they pass through the middleware, and the object that is kept of them.

No header is part of it: headers hold the keys of users.
"""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from nemo_gym._capture.records import Dialect
from nemo_gym._capture.streams import read_stream

if TYPE_CHECKING:
    from starlette.types import Message

INCOMPLETE = "incomplete"
_CATEGORIES = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit", 504: "timeout"}


@dataclass
class Exchange:
    """One request and its response while they pass through."""

    rollout_id: str
    dialect: Dialect
    token_context: Any = None
    """None if the tokens of the answer are not wanted."""
    model_call_id: str = field(default_factory=lambda: uuid4().hex)
    started_at: float = field(default_factory=time.time)
    started: float = field(default_factory=time.perf_counter)
    first_byte: float | None = None
    ended: float | None = None
    status_code: int | None = None
    content_type: bytes = b""
    request_chunks: list[bytes] = field(default_factory=list)
    response_chunks: list[bytes] = field(default_factory=list)
    disconnected: bool = False
    cut_short_by: str | None = None
    """Why the response never reached its end; None if it did."""

    def note_received(self, message: "Message") -> None:
        if message["type"] == "http.request":
            self.request_chunks.append(message.get("body", b""))
        elif message["type"] == "http.disconnect":
            self.disconnected = self.ended is None

    def note_sent(self, message: "Message") -> bool:
        """Take in one outgoing message; True if it is the last of the response."""
        if message["type"] == "http.response.start":
            self.status_code = message["status"]
            headers = {name.lower(): value for name, value in message.get("headers", [])}
            self.content_type = headers.get(b"content-type", b"")
        elif message["type"] == "http.response.body":
            if body := message.get("body", b""):
                self.first_byte = self.first_byte or time.perf_counter()
                self.response_chunks.append(body)
            return not message.get("more_body", False)
        return False

    def end(self, cut_short_by: str | None = None) -> None:
        self.ended = time.perf_counter()
        self.cut_short_by = cut_short_by

    def fields(self, model_ref: dict[str, Any] | None) -> dict[str, Any]:
        """Return what is kept of a finished exchange."""
        latency_s = (self.ended if self.ended is not None else time.perf_counter()) - self.started
        request_raw, response_raw = b"".join(self.request_chunks), b"".join(self.response_chunks)
        response, category, is_kept_as_text = self._read_response(response_raw)
        request = _parse_object(request_raw)
        kept = {
            "model_call_id": self.model_call_id,
            "dialect": self.dialect,
            "model_ref": model_ref,
            "started_at": self.started_at,
            "completed_at": self.started_at + latency_s,
            "latency_ms": round(latency_s * 1000, 2),
            "latency_ttft_ms": None if self.first_byte is None else round((self.first_byte - self.started) * 1000, 2),
            "status_code": self.status_code,
            "error_category": self.cut_short_by or category,
            "request": request,
            "response": response,
        }
        if request is None and request_raw:
            kept["request_raw"] = request_raw.decode("utf-8", errors="replace")
        if is_kept_as_text and response_raw:
            kept["response_raw"] = response_raw.decode("utf-8", errors="replace")
        return kept

    def _read_response(self, raw: bytes) -> tuple[dict[str, Any] | None, str | None, bool]:
        """Return the response as an object, the kind of failure it stands for, and whether its text is kept too."""
        failure = _category_of_status(self.status_code)
        if self.content_type.startswith(b"text/event-stream"):
            stream = read_stream(raw.decode("utf-8", errors="replace"), self.dialect)
            if failure is None:
                if stream.has_failed:
                    failure = "upstream_error"
                elif stream.is_incomplete:
                    failure = INCOMPLETE
                elif not stream.has_ended:
                    failure = "stream_truncated"
            return stream.response, failure, True
        response = _parse_object(raw)
        if response is None and failure is None:
            failure = "capture_parse_error"
        return response, failure, response is None


def category_of_exception(error: BaseException) -> str:
    """Name the kind of failure that `error`, or what caused it, stands for."""
    from aiohttp import ClientConnectionError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return "timeout"
        if isinstance(cause, ConnectionError | ClientConnectionError):
            return "connection"
        cause = cause.__cause__
    return "exception"


def _category_of_status(status_code: int | None) -> str | None:
    if status_code is None:
        return "no_response"
    if status_code < 400:
        return None
    return _CATEGORIES.get(status_code, "client_error" if status_code < 500 else "upstream_error")


def _parse_object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(raw) if raw else None
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
