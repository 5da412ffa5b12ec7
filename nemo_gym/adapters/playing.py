# SPDX-License-Identifier: Apache-2.0
"""Let third-party code play a rollout: it has a deadline, may block, and is not blamed for a failed model."""

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from nemo_gym._transport.failures import convert_exit
from nemo_gym._util.off_the_loop import interrupt_thread
from nemo_gym.adapters.library_loop import LibraryBlocked
from nemo_gym.errors import RolloutFailure

__all__ = ["blame_model", "play_in_own_thread", "play_in_time"]

LOG = logging.getLogger(__name__)
T = TypeVar("T")

_CANCEL_GRACE_S = 5.0
_AGENT_FAILURE_KINDS = ("agent", "no_model_call")
"""Kinds of failure that a failed model call explains."""


async def play_in_time(play: Coroutine[Any, Any, T], limit_s: float, agent: str) -> T:
    """Return the result of `play`; raise a RolloutFailure if it takes longer than `limit_s`.

    `play` may keep running after that: its calls are refused once the rollout's session is deleted.
    """
    playing = asyncio.ensure_future(_await_without_exit(play))
    try:
        await asyncio.wait({playing}, timeout=limit_s)
    finally:
        if not playing.done():
            playing.cancel()
            await asyncio.wait({playing}, timeout=_CANCEL_GRACE_S)
            if not playing.done():
                LOG.error("%s: a rollout keeps running although it was canceled", agent)
    if playing.done() and not playing.cancelled():
        return playing.result()
    raise RolloutFailure(
        "timeout",
        f"{agent!r} did not finish its rollout within {limit_s:g} s (rollout_timeout_s).\n"
        "hint: raise the limit in the agent's config, or run fewer rollouts at once (`num_samples_in_parallel`)",
        True,
    )


async def play_in_own_thread(play: Callable[..., T], /, *args: Any) -> T:
    """Run `play(*args)`, which may block, in its own thread. Canceling this interrupts its Python code."""
    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        with contextlib.suppress(InvalidStateError):  # nobody is waiting any more
            try:
                result = context.run(play, *args)
            except BaseException as error:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

    thread = threading.Thread(target=work, name=getattr(play, "__qualname__", "play"), daemon=True)
    thread.start()
    try:
        return await asyncio.wrap_future(outcome)
    except asyncio.CancelledError:
        interrupt_thread(thread, LibraryBlocked)
        raise


def blame_model(error: Exception, traces: Sequence[Mapping[str, Any]]) -> Exception:
    """Return the failure of the last model call if that explains `error`, else `error`."""
    if not traces:
        return error
    last = traces[-1]["error"]
    if last is None or (isinstance(error, RolloutFailure) and error.kind not in _AGENT_FAILURE_KINDS):
        return error
    failure = RolloutFailure("model_endpoint", f"the last model call failed: {last}", True)
    failure.__cause__ = error
    return failure


async def _await_without_exit(play: Coroutine[Any, Any, T]) -> T:
    """Await `play`; turn an attempt to exit the process into an ordinary error."""
    try:
        return await play
    except BaseException as raised:
        raise convert_exit(raised)  # noqa: B904  # it is the same error, or carries it as its cause
