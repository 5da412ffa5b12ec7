# SPDX-License-Identifier: Apache-2.0
"""How a call's tokens get from the model server to its sink.

A call has a context, which names its rollout and its sink. A model server may call `capture_tokens` with its answer;
for one that does not, the middleware reads the answer as it leaves. A sink is someone else's code: what it raises never
fails the model call, but marks the rollout incomplete.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from nemo_gym._training.capture.capture_middleware import RecordedAnswer
from nemo_gym._util.known_secrets import describe_error
from nemo_gym.token_id_capture.protocols import TokenSink, TokenSource
from nemo_gym.token_id_capture.records import (
    MASK_SAMPLE_KEY as MASK_SAMPLE_KEY,
    TOKEN_CAPTURE_KEY as TOKEN_CAPTURE_KEY,
    TokenEntry,
    read_token_entries,
    rollout_carries_token_ids as rollout_carries_token_ids,
)

LOG = logging.getLogger(__name__)

SINK_TIMEOUT_S = 60.0
"""How long one call of a sink may take; the model's answer waits for it."""
MARK_DELAYS_S = (0.0, 0.5, 2.0)
"""The waits before each attempt to mark a rollout incomplete: if the mark is lost, half a rollout is trained on."""


# --- the sink and the source of this process --------------------------------------------------------------------------


@dataclass
class _Installed:
    sink: TokenSink | None = None
    source: TokenSource | None = None


_INSTALLED = _Installed()


def install_token_sink(sink: TokenSink | None) -> None:
    """Make `sink` the one that the model servers of this process put tokens into; None removes it.

    It takes precedence over the config. Whoever installs a sink closes it.
    """
    _INSTALLED.sink = sink


def installed_token_sink() -> TokenSink | None:
    return _INSTALLED.sink


def install_token_source(source: TokenSource | None) -> None:
    """Make `source` the one that collections of this process take tokens from; None removes it.

    It takes precedence over the config. Whoever installs a source closes it.
    """
    _INSTALLED.source = source


def installed_token_source() -> TokenSource | None:
    return _INSTALLED.source


# --- the call that is being answered ----------------------------------------------------------------------------------


@dataclass
class CaptureContext:
    """The model call whose tokens are wanted."""

    sink: TokenSink
    rollout_id: str
    model_call_id: str
    is_done: bool = field(default=False, compare=False)
    """Its tokens were put, or the rollout was marked incomplete."""


_CONTEXT: ContextVar[CaptureContext | None] = ContextVar("nemo_gym_token_capture", default=None)


def set_token_sink(
    sink: TokenSink | None, rollout_id: str = "", model_call_id: str = ""
) -> Token[CaptureContext | None]:
    """Send the tokens of the call that is being answered to `sink` until `reset_token_sink`; None discards them."""
    return _CONTEXT.set(None if sink is None else CaptureContext(sink, rollout_id, model_call_id))


def reset_token_sink(token: Token[CaptureContext | None]) -> None:
    """Undo `set_token_sink`."""
    _CONTEXT.reset(token)


def current_capture_context() -> CaptureContext | None:
    """Return the call that is being answered; None if its tokens are not wanted."""
    return _CONTEXT.get()


async def register_call_intent(context: CaptureContext | None = None) -> None:
    """Tell a sink that has `begin_call` that the model is about to be called."""
    context = context or _CONTEXT.get()
    if context is None:
        return
    rollout_id = context.rollout_id
    call_id = context.model_call_id
    begin_call = getattr(context.sink, "begin_call", None)
    if begin_call is not None:
        failure = await _call_sink(lambda: begin_call(rollout_id, call_id))
        if failure is not None:
            await _mark_incomplete(context, f"begin_call of the token sink failed: {failure}")


async def capture_tokens(answer: Any, context: CaptureContext | None = None) -> bool:
    """Put the tokens of a model's answer into the sink; False if there are none, or no sink.

    An answer without tokens marks the rollout incomplete.
    """
    context = context or _CONTEXT.get()
    if context is None:
        return False
    try:
        entries = await asyncio.to_thread(read_token_entries, answer, context.rollout_id, context.model_call_id)
        reason = "the answer holds no token ids"
    except ValidationError as error:
        entries = []
        reason = f"the token ids of the answer are not valid: {error.errors()[0]['msg']}"
    for entry in entries:
        if not await commit_entry(entry, context):
            return False
    if not entries:
        await _mark_incomplete(context, reason)
    return bool(entries)


async def commit_entry(entry: TokenEntry, context: CaptureContext | None = None) -> bool:
    """Put `entry` into the sink; where that fails, mark the rollout incomplete and return False."""
    context = context or _CONTEXT.get()
    if context is None:
        return False
    sink = context.sink
    failure = await _call_sink(lambda: sink.put(entry))
    if failure is not None:
        await _mark_incomplete(context, f"put of the token sink failed: {failure}")
        return False
    context.is_done = True
    return True


async def _mark_incomplete(context: CaptureContext, reason: str) -> None:
    """Mark the rollout of a call incomplete, with the reason where the sink takes one."""
    context.is_done = True
    sink = context.sink
    rollout_id = context.rollout_id
    call_id = context.model_call_id
    LOG.info("the tokens of rollout %r are incomplete: call %s: %s", rollout_id, call_id, reason)
    explain = getattr(sink, "explain_incomplete", None)
    if explain is not None:
        await _call_sink(lambda: explain(rollout_id, call_id, reason))
    for delay_s in MARK_DELAYS_S:
        await asyncio.sleep(delay_s)
        failure = await _call_sink(lambda: sink.mark_incomplete(rollout_id, call_id))
        if failure is None:
            return
    LOG.error(
        "rollout %r lacks the tokens of call %s, and the token sink could not be told: %s.\n"
        "hint: do not train on this rollout",
        rollout_id,
        call_id,
        failure,
    )


async def _call_sink(call: Callable[[], Awaitable[Any]]) -> str | None:
    """Call a sink, within the deadline; log and return what went wrong."""
    try:
        async with asyncio.timeout(SINK_TIMEOUT_S) as deadline:
            await call()
    except Exception as error:
        LOG.warning("the token sink failed: %s", describe_error(error), exc_info=True)
        return f"no answer within {SINK_TIMEOUT_S:g} s" if deadline.expired() else describe_error(error)
    return None


# --- the calls of a model server --------------------------------------------------------------------------------------


class TokenDelivery:
    """Hands the tokens of a model server's calls to its sink, also of calls whose caller is gone."""

    def __init__(self, sink: TokenSink | None = None) -> None:
        self.sink = sink
        self._under_way: set[asyncio.Task[None]] = set()

    def has_sink(self) -> bool:
        """Return whether tokens have anywhere to go."""
        return installed_token_sink() is not None or self.sink is not None

    @asynccontextmanager
    async def open_call(self, rollout_id: str, model_call_id: str) -> AsyncIterator[CaptureContext | None]:
        """Announce a call to the sink and yield its context; None if there is no sink."""
        installed = installed_token_sink()
        token = set_token_sink(self.sink if installed is None else installed, rollout_id, model_call_id)
        try:
            await register_call_intent()
            yield current_capture_context()
        finally:
            reset_token_sink(token)

    def start_delivery(self, context: CaptureContext, call: "Future[RecordedAnswer]") -> asyncio.Task[None]:
        """Deliver the tokens of `call` as soon as its answer is read, even if nobody waits for it."""
        task = asyncio.create_task(self._deliver(context, call))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def close(self) -> None:
        """Finish what is under way, then close the sink."""
        while self._under_way:
            await asyncio.wait(self._under_way)
        sink = self.sink
        if sink is not None:
            await _call_sink(sink.close)

    async def _deliver(self, context: CaptureContext, call: "Future[RecordedAnswer]") -> None:
        answer = await asyncio.wrap_future(call)
        if answer.failure is not None:
            await _mark_incomplete(context, answer.failure)
        elif not context.is_done:
            await capture_tokens(answer.response, context)
