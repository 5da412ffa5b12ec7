# SPDX-License-Identifier: Apache-2.0
"""The middleware of model servers: strips the rollout prefix and, if asked to, records every exchange with the model.

It passes bytes on unchanged. Parsing and writing happen in threads of its own; the last chunk of a response, or an
error, waits for them, so that a caller that has its answer also finds the capture on disk.
"""

import asyncio
import functools
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nemo_gym._capture.exchange import INCOMPLETE, Exchange, category_of_exception
from nemo_gym._capture.records import DIALECT_OF_PATH
from nemo_gym._capture.store import CaptureStore
from nemo_gym._util.rollout_paths import split_rollout_prefix, without_rollout_prefix

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

# Writers spend their time waiting for the disk, each for the file of another rollout.
_WRITERS = 8


class RecordedAnswer(NamedTuple):
    """What token capture gets to know of a call."""

    response: dict[str, Any] | None
    failure: str | None
    """Why no tokens are to be looked for; None if the model answered."""


class TokenCapture(Protocol):
    """What takes the token ids out of answers: `nemo_gym.token_id_capture.TokenDelivery`."""

    def has_sink(self) -> bool:
        """Return whether tokens have anywhere to go."""

    def open_call(self, rollout_id: str, model_call_id: str) -> AbstractAsyncContextManager[Any]:
        """Announce a call and yield its context."""

    def start_delivery(self, context: Any, call: "Future[RecordedAnswer]") -> "asyncio.Future[None]":
        """Deliver the tokens of a call once it is recorded."""


class CaptureMiddleware:
    """Pure ASGI. Without `store` and `tokens` it costs one look at the path."""

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
        inner_scope = without_rollout_prefix(scope, split)
        dialect = DIALECT_OF_PATH.get(split.rest)
        tokens = self.tokens if split.token_capture and self.tokens is not None and self.tokens.has_sink() else None
        if dialect is None or scope.get("method") != "POST" or not (self.store or tokens):
            return await self.app(inner_scope, receive, send)
        exchange = Exchange(split.rollout_id, dialect)
        if tokens is None:
            return await self._pass_on(inner_scope, receive, send, exchange)
        async with tokens.open_call(exchange.rollout_id, exchange.model_call_id) as exchange.token_context:
            return await self._pass_on(inner_scope, receive, send, exchange)

    async def _pass_on(self, scope: "Scope", receive: "Receive", send: "Send", exchange: Exchange) -> None:
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
                exchange.end("client_disconnected" if exchange.disconnected else category_of_exception(error))
                await self._write(exchange)
            raise
        finally:
            if exchange.ended is None:
                exchange.end("client_disconnected" if exchange.disconnected else cause)
                # Not awaited: in a cancelled scope the next await would be cancelled too. It finishes by itself.
                self._start_writing(exchange)

    async def _write(self, exchange: Exchange) -> None:
        # Shielded: a cancelled request must not take a queued write with it.
        await asyncio.shield(self._start_writing(exchange))

    def _start_writing(self, exchange: Exchange) -> "asyncio.Future[Any]":
        recorded = self._submit(exchange)
        if self.tokens is None or exchange.token_context is None:
            return asyncio.wrap_future(recorded)
        return self.tokens.start_delivery(exchange.token_context, recorded)

    def _submit(self, exchange: Exchange) -> "Future[RecordedAnswer]":
        return self._writer.submit(self._record, exchange)

    @functools.cached_property
    def _writer(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=_WRITERS, thread_name_prefix="ng-capture")

    def _record(self, exchange: Exchange) -> RecordedAnswer:
        kept: dict[str, Any] | None = None
        try:
            kept = exchange.fields(self.model_ref)
            if self.store is not None:
                self.store.record(exchange.rollout_id, kept)
                if exchange.cut_short_by is not None:
                    reason = f"{exchange.cut_short_by}: call {exchange.model_call_id} has no end"
                    self.store.mark_incomplete(exchange.rollout_id, reason)
        except Exception as error:
            # Whatever keeps a capture from being written must not fail the model call that it watches.
            self._note_loss(exchange, error)
        if kept is None:
            return RecordedAnswer(None, "capture_parse_error")
        # An answer that was cut off by its length is one to train on.
        category = kept["error_category"]
        return RecordedAnswer(kept["response"], None if category == INCOMPLETE else category)

    def _note_loss(self, exchange: Exchange, error: Exception) -> None:
        logger.warning("a call of rollout %r could not be captured: %s", exchange.rollout_id, error)
        try:
            if self.store is not None:
                reason = f"write_failed: call {exchange.model_call_id}: {error}"
                self.store.mark_incomplete(exchange.rollout_id, reason)
        except OSError as marking:
            logger.warning("the capture of rollout %r is incomplete, unmarked: %s", exchange.rollout_id, marking)
