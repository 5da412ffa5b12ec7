# SPDX-License-Identifier: Apache-2.0
"""The middleware of model servers: strips the rollout prefix and, if asked to, records every exchange with the model.

It passes bytes on unchanged and records no header. Parsing and writing happen in one thread of its own; the last
chunk of a response, or an error, waits for it, so that a caller that has its answer also finds the capture on disk.
"""

import asyncio
import functools
import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from nemo_gym._capture.payloads import stream_failed, token_bundles
from nemo_gym._capture.records import DIALECT_OF_PATH, Dialect, ModelCallRecord, new_model_call_id
from nemo_gym._capture.store import CaptureStore
from nemo_gym._capture.tokens import TokenSink
from nemo_gym._util.rollout_paths import split_rollout_prefix, without_rollout_prefix

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

ModelRef = dict[str, Any] | str | None


@dataclass
class Exchange:
    """One request and its response while they pass through."""

    rollout_id: str
    dialect: Dialect
    token_capture: bool
    model_call_id: str = field(default_factory=new_model_call_id)
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


class CaptureMiddleware:
    """Pure ASGI. Without `store` and `token_sink` it costs one look at the path."""

    only_for_rollout_paths = True

    def __init__(
        self,
        app: "ASGIApp",
        store: CaptureStore | None = None,
        model_ref: ModelRef = None,
        token_sink: TokenSink | None = None,
    ) -> None:
        self.app = app
        self.store = store
        self.model_ref = model_ref
        self.token_sink = token_sink

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        split = split_rollout_prefix(scope["path"])
        if split.rollout_id is None:
            return await self.app(scope, receive, send)
        inner_scope = without_rollout_prefix(scope, split)
        dialect = DIALECT_OF_PATH.get(split.rest)
        wants_tokens = split.token_capture and self.token_sink is not None
        if dialect is None or scope.get("method") != "POST" or not (self.store or wants_tokens):
            return await self.app(inner_scope, receive, send)
        return await self._observed(inner_scope, receive, send, Exchange(split.rollout_id, dialect, wants_tokens))

    async def _observed(self, scope: "Scope", receive: "Receive", send: "Send", exchange: Exchange) -> None:
        async def observed_receive() -> "Message":
            message = await receive()
            exchange.note_received(message)
            return message

        async def observed_send(message: "Message") -> None:
            if exchange.note_sent(message) and exchange.ended is None:
                exchange.end()
                await self._written(exchange)
            await send(message)

        cause = "no_response"
        try:
            await self.app(scope, observed_receive, observed_send)
        except asyncio.CancelledError:
            cause = "cancelled"
            raise
        except Exception:
            if exchange.ended is None:
                exchange.end("client_disconnected" if exchange.disconnected else "exception")
                await self._written(exchange)
            raise
        finally:
            if exchange.ended is None:
                exchange.end("client_disconnected" if exchange.disconnected else cause)
                # Not awaited: in a cancelled scope the next await would be cancelled too. The thread finishes it.
                self._submit(exchange)

    async def _written(self, exchange: Exchange) -> None:
        # Shielded: a cancelled request must not take a queued write with it.
        await asyncio.shield(asyncio.wrap_future(self._submit(exchange)))

    def _submit(self, exchange: Exchange) -> "Future[None]":
        return self._writer.submit(self._record, exchange)

    @functools.cached_property
    def _writer(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="ng-capture")

    def _record(self, exchange: Exchange) -> None:
        record = record_of(exchange, self.model_ref)
        if self.store is not None:
            self._store(self.store, exchange, record)
        if exchange.token_capture and self.token_sink is not None:
            self._put_tokens(self.token_sink, exchange, record)

    def _store(self, store: CaptureStore, exchange: Exchange, record: ModelCallRecord) -> None:
        try:
            store.append(exchange.rollout_id, record)
            if exchange.cut_short_by is not None:
                store.mark_incomplete(
                    exchange.rollout_id, exchange.cut_short_by, "the response has no end", record.model_call_id
                )
        except OSError as error:
            logger.warning("a call of rollout %r could not be captured: %s", exchange.rollout_id, error)
            self._try_to_mark(store, exchange, str(error))

    def _try_to_mark(self, store: CaptureStore, exchange: Exchange, detail: str) -> None:
        try:
            store.mark_incomplete(exchange.rollout_id, "write_failed", detail, exchange.model_call_id)
        except OSError as error:
            logger.warning("the capture of rollout %r could not be marked incomplete: %s", exchange.rollout_id, error)

    def _put_tokens(self, sink: TokenSink, exchange: Exchange, record: ModelCallRecord) -> None:
        try:
            bundles = [] if record.failed else token_bundles(record.response)
            for bundle in bundles:
                sink.put(exchange.rollout_id, {"model_call_id": record.model_call_id, **bundle})
            if not bundles:
                reason = record.error_category or "the answer holds no token ids"
                sink.mark_incomplete(exchange.rollout_id, f"call {record.model_call_id}: {reason}")
        except Exception:
            # A sink is the user's own class. Whatever it raises must not fail the model call it watches.
            logger.warning("the token sink failed for rollout %r", exchange.rollout_id, exc_info=True)


def record_of(exchange: Exchange, model_ref: ModelRef) -> ModelCallRecord:
    """Parse the bytes of a finished exchange."""
    ended = exchange.ended if exchange.ended is not None else time.perf_counter()
    latency_s = ended - exchange.started
    response = _body_value(exchange.response_chunks, stream=exchange.content_type.startswith(b"text/event-stream"))
    return ModelCallRecord(
        model_call_id=exchange.model_call_id,
        rollout_id=exchange.rollout_id,
        dialect=exchange.dialect,
        model_ref=model_ref,
        started_at=exchange.started_at,
        completed_at=exchange.started_at + latency_s,
        latency_ms=latency_s * 1000,
        latency_ttft_ms=None if exchange.first_byte is None else (exchange.first_byte - exchange.started) * 1000,
        status_code=exchange.status_code,
        error_category=exchange.cut_short_by or error_category_of(exchange.status_code, response),
        request=_body_value(exchange.request_chunks),
        response=response,
    )


def error_category_of(status_code: int | None, response: Any) -> str | None:
    """Name the kind of failure that a finished response stands for; None for a success."""
    if status_code is None:
        return "no_response"
    if status_code < 400:
        return "stream_failed" if isinstance(response, str) and stream_failed(response) else None
    named = {408: "timeout", 422: "invalid_request", 429: "rate_limited", 504: "timeout"}
    return named.get(status_code, "client_error" if status_code < 500 else "server_error")


def _body_value(chunks: list[bytes], *, stream: bool = False) -> Any:
    body = b"".join(chunks)
    if not body:
        return None
    if not stream:
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            pass
    return body.decode("utf-8", errors="replace")
