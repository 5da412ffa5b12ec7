# SPDX-License-Identifier: Apache-2.0
"""The middleware of model servers: strips the rollout prefix and, if asked to, records every exchange with the model.

It passes bytes on unchanged. Parsing and writing happen in threads of its own; the last chunk of a response, or an
error, waits for them, so that a caller that has its answer also finds the capture on disk.
"""

import asyncio
import functools
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from nemo_gym._capture.exchange import INCOMPLETE, Exchange, category_of_exception
from nemo_gym._capture.payloads import token_bundles
from nemo_gym._capture.records import DIALECT_OF_PATH
from nemo_gym._capture.store import CaptureStore
from nemo_gym._capture.tokens import TokenSink
from nemo_gym._util.rollout_paths import split_rollout_prefix, without_rollout_prefix

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

# Writers spend their time waiting for the disk, each for the file of another rollout.
_WRITERS = 8


class CaptureMiddleware:
    """Pure ASGI. Without `store` and `token_sink` it costs one look at the path."""

    only_for_rollout_paths = True

    def __init__(
        self,
        app: "ASGIApp",
        store: CaptureStore | None = None,
        model_ref: dict[str, Any] | None = None,
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
        return await self._pass_on(inner_scope, receive, send, Exchange(split.rollout_id, dialect, wants_tokens))

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
                # Not awaited: in a cancelled scope the next await would be cancelled too. The thread finishes it.
                self._submit(exchange)

    async def _write(self, exchange: Exchange) -> None:
        # Shielded: a cancelled request must not take a queued write with it.
        await asyncio.shield(asyncio.wrap_future(self._submit(exchange)))

    def _submit(self, exchange: Exchange) -> "Future[None]":
        return self._writer.submit(self._record, exchange)

    @functools.cached_property
    def _writer(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=_WRITERS, thread_name_prefix="ng-capture")

    def _record(self, exchange: Exchange) -> None:
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
        if kept is not None and exchange.token_capture and self.token_sink is not None:
            self._put_tokens(self.token_sink, exchange, kept)

    def _note_loss(self, exchange: Exchange, error: Exception) -> None:
        logger.warning("a call of rollout %r could not be captured: %s", exchange.rollout_id, error)
        try:
            if self.store is not None:
                reason = f"write_failed: call {exchange.model_call_id}: {error}"
                self.store.mark_incomplete(exchange.rollout_id, reason)
        except OSError as marking:
            logger.warning("the capture of rollout %r is incomplete, unmarked: %s", exchange.rollout_id, marking)

    def _put_tokens(self, sink: TokenSink, exchange: Exchange, kept: dict[str, Any]) -> None:
        try:
            category = kept["error_category"]
            bundles = token_bundles(kept["response"]) if category in (None, INCOMPLETE) else []
            for bundle in bundles:
                sink.put(exchange.rollout_id, {"model_call_id": exchange.model_call_id, **bundle})
            if not bundles:
                reason = category or "the answer holds no token ids"
                sink.mark_incomplete(exchange.rollout_id, f"call {exchange.model_call_id}: {reason}")
        except Exception:
            # A sink is the user's own class. Whatever it raises must not fail the model call it watches.
            logger.warning("the token sink failed for rollout %r", exchange.rollout_id, exc_info=True)
