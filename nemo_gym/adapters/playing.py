# SPDX-License-Identifier: Apache-2.0
"""Let somebody else's code play a rollout: it has a deadline, may block, and is not blamed for a model that failed."""

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from nemo_gym._transport.failures import convert_exit
from nemo_gym._util.aio import interrupt_thread
from nemo_gym.adapters.library_loop import LibraryBlocked
from nemo_gym.errors import RolloutFailure

__all__ = ["blame_model", "play_in_own_thread", "play_in_time"]

LOG = logging.getLogger(__name__)
T = TypeVar("T")

_CANCEL_GRACE_S = 5.0
_AGENTS_OWN = ("agent", "no_model_call")
"""Failures that a failed call of the model explains."""


async def play_in_time(play: Coroutine[Any, Any, T], limit_s: float, agent: str) -> T:
    """Return what `play` returns; a RolloutFailure if that takes longer than `limit_s`.

    It may be left behind then: its calls are refused once the session of the rollout is deleted.
    """
    playing = asyncio.ensure_future(_end_call_only(play))
    try:
        await asyncio.wait({playing}, timeout=limit_s)
    finally:
        if not playing.done():
            playing.cancel()
            await asyncio.wait({playing}, timeout=_CANCEL_GRACE_S)
            if not playing.done():
                LOG.error("%s: a rollout goes on although it was cancelled", agent)
    if playing.done() and not playing.cancelled():
        return playing.result()
    raise RolloutFailure(
        "timeout",
        f"{agent!r} had not finished its rollout after {limit_s:g} s (rollout_timeout_s).\n"
        "hint: give it more time in the config of the agent, or fewer rollouts at once (`num_samples_in_parallel`)",
        True,
    )


async def play_in_own_thread(play: Callable[..., T], /, *args: Any) -> T:
    """Run `play(*args)`, which may block, in a thread of its own. Cancelling this interrupts its Python code."""
    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
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
    """Return the failure of the model's last call, if that is what the code stumbled over, else `error`."""
    last = traces[-1]["error"] if traces else None
    if last is None or (isinstance(error, RolloutFailure) and error.kind not in _AGENTS_OWN):
        return error
    failure = RolloutFailure("model_endpoint", f"the last call of the model failed: {last}", True)
    failure.__cause__ = error
    return failure


async def _end_call_only(play: Coroutine[Any, Any, T]) -> T:
    """Await `play`; if it wants to end the process, that is an error of its own."""
    try:
        return await play
    except BaseException as raised:
        raise convert_exit(raised)  # noqa: B904  # it is the same error, or has its cause
