# SPDX-License-Identifier: Apache-2.0
"""The middleware of model servers: strips the rollout prefix and, if configured, records every exchange with the model.

It passes bytes on unchanged. Parsing and writing happen in its own threads; the last chunk of a response, or an error,
waits for them, so that a caller that has its answer also finds the capture on disk. Headers are not recorded: they hold
users' keys.
"""

import asyncio
import functools
import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import uuid4

import orjson

from nemo_gym._training.capture.call_records import Dialect, find_dialect
from nemo_gym._training.capture.capture_store import CaptureStore
from nemo_gym._training.capture.streamed_responses import read_stream
from nemo_gym._util.rollout_paths import remove_rollout_prefix, split_rollout_prefix

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger(__name__)

INCOMPLETE = "incomplete"
_CATEGORIES = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit", 504: "timeout"}


@dataclass
class CapturedExchange:
    """One request and its response in transit."""

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
        """Process one outgoing message; return True if it is the last of the response."""
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
        """Note when the exchange ended, and what cut it short; a caller that left explains any other cause."""
        self.ended = time.perf_counter()
        if cut_short_by is not None and self.disconnected:
            cut_short_by = "client_disconnected"
        self.cut_short_by = cut_short_by

    def build_record(self, model_ref: dict[str, Any] | None) -> dict[str, Any]:
        """Return the record of a finished exchange."""
        latency_s = (self.ended if self.ended is not None else time.perf_counter()) - self.started
        request_raw = b"".join(self.request_chunks)
        response_raw = b"".join(self.response_chunks)
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
        """Return the response as an object, the kind of failure it stands for, and whether to keep its text too."""
        failure = _classify_status(self.status_code)
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


def classify_exception(error: BaseException) -> str:
    """Return the kind of failure that `error`, or its cause, stands for."""
    from aiohttp import ClientConnectionError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return "timeout"
        if isinstance(cause, ConnectionError | ClientConnectionError):
            return "connection"
        cause = cause.__cause__
    return "exception"


def _classify_status(status_code: int | None) -> str | None:
    if status_code is None:
        return "no_response"
    if status_code < 400:
        return None
    if status_code in _CATEGORIES:
        return _CATEGORIES[status_code]
    return "client_error" if status_code < 500 else "upstream_error"


def _parse_object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


# Writers mostly wait for the disk, each for another rollout's file.
_WRITERS = 8


class RecordedAnswer(NamedTuple):
    """What token capture learns about a call."""

    response: dict[str, Any] | None
    failure: str | None
    """Why not to look for tokens; None if the model answered."""


class TokenCapture(Protocol):
    """Extracts the token ids of answers: `nemo_gym.token_id_capture.TokenDelivery`."""

    def has_sink(self) -> bool:
        """Return whether tokens have anywhere to go."""

    def open_call(self, rollout_id: str, model_call_id: str) -> AbstractAsyncContextManager[Any]:
        """Announce a call and yield its context."""

    def start_delivery(self, context: Any, call: "Future[RecordedAnswer]") -> "asyncio.Future[None]":
        """Deliver the tokens of a call once it is recorded."""


class CaptureMiddleware:
    """Pure ASGI. Without `store` and `tokens`, it only looks at the path."""

    only_for_rollout_paths = True

    def __init__(
        self,
        app: "ASGIApp",
        store: CaptureStore | None = None,
        model_ref: dict[str, Any] | None = None,
        tokens: TokenCapture | None = None,
    ) -> None:
        self.app = app
        self.store = store
        self.model_ref = model_ref
        self.tokens = tokens

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        split = split_rollout_prefix(scope["path"])
        if split.rollout_id is None:
            return await self.app(scope, receive, send)
        inner_scope = remove_rollout_prefix(scope, split)
        dialect = find_dialect(split.rest)
        tokens = self.tokens
        if not split.token_capture or (tokens is not None and not tokens.has_sink()):
            tokens = None
        if dialect is None or scope.get("method") != "POST" or not (self.store or tokens):
            return await self.app(inner_scope, receive, send)
        exchange = CapturedExchange(split.rollout_id, dialect)
        if tokens is None:
            return await self._pass_on(inner_scope, receive, send, exchange)
        async with tokens.open_call(exchange.rollout_id, exchange.model_call_id) as exchange.token_context:
            return await self._pass_on(inner_scope, receive, send, exchange)

    async def _pass_on(self, scope: "Scope", receive: "Receive", send: "Send", exchange: CapturedExchange) -> None:
        async def observed_receive() -> "Message":
            message = await receive()
            exchange.note_received(message)
            return message

        async def observed_send(message: "Message") -> None:
            if exchange.note_sent(message) and exchange.ended is None:
                exchange.end()
                await self._write(exchange)
            await send(message)

        cause = "no_response"
        try:
            await self.app(scope, observed_receive, observed_send)
        except asyncio.CancelledError:
            cause = "cancelled"
            raise
        except Exception as error:
            if exchange.ended is None:
                exchange.end(classify_exception(error))
                await self._write(exchange)
            raise
        finally:
            if exchange.ended is None:
                exchange.end(cause)
                # Not awaited: in a canceled scope the next await would be canceled too. It finishes on its own.
                self._start_writing(exchange)

    async def _write(self, exchange: CapturedExchange) -> None:
        # Shielded: a canceled request must not take a queued write with it.
        await asyncio.shield(self._start_writing(exchange))

    def _start_writing(self, exchange: CapturedExchange) -> "asyncio.Future[Any]":
        recorded = self._writer.submit(self._record, exchange)
        if self.tokens is None or exchange.token_context is None:
            return asyncio.wrap_future(recorded)
        return self.tokens.start_delivery(exchange.token_context, recorded)

    @functools.cached_property
    def _writer(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=_WRITERS, thread_name_prefix="ng-capture")

    def _record(self, exchange: CapturedExchange) -> RecordedAnswer:
        kept: dict[str, Any] | None = None
        try:
            kept = exchange.build_record(self.model_ref)
            if self.store is not None:
                self.store.record(exchange.rollout_id, kept)
                if exchange.cut_short_by is not None:
                    reason = f"{exchange.cut_short_by}: call {exchange.model_call_id} has no end"
                    self.store.mark_incomplete(exchange.rollout_id, reason)
        except Exception as error:
            # Whatever prevents a capture from being written must not fail the model call it watches.
            self._note_loss(exchange, error)
        if kept is None:
            return RecordedAnswer(None, "capture_parse_error")
        failure = kept["error_category"]
        if failure == INCOMPLETE:
            failure = None  # an answer cut off by its length is one to train on
        return RecordedAnswer(kept["response"], failure)

    def _note_loss(self, exchange: CapturedExchange, error: Exception) -> None:
        LOG.warning("a call of rollout %r could not be captured: %s", exchange.rollout_id, error)
        try:
            if self.store is not None:
                reason = f"write_failed: call {exchange.model_call_id}: {error}"
                self.store.mark_incomplete(exchange.rollout_id, reason)
        except OSError as marking:
            LOG.warning("the capture of rollout %r is incomplete, unmarked: %s", exchange.rollout_id, marking)
