# SPDX-License-Identifier: Apache-2.0
"""End a run before its last rollout: on signals, when a server blocks the event loop, or when a server dies."""

import asyncio
import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from nemo_gym._rollouts.control import RunControl
from nemo_gym.cli import render
from nemo_gym.cli.eval.results import INTERRUPTED

if TYPE_CHECKING:
    from nemo_gym._servers.launching.launch import Served
    from nemo_gym._servers.processes.loop_watch import Blockage
    from nemo_gym._servers.processes.server_process import ServerDied
    from nemo_gym.cli.eval.progress import Screen

# Longer than it takes to notice that a server process, or one of its workers, has died.
_HOLD_FAILURES_S = 6.0
_BLOCKED_HINT = (
    "hint: a handler must not wait or compute for long in the event loop: use `asyncio.to_thread`, or give the server "
    "a process of its own with `placement: process`"
)


class RunInterrupts:
    """Lets signals end a run of this process, even while a server blocks its event loop.

    The first Ctrl-C stops dispatching, the second cancels running rollouts, a third ends the process at once. SIGTERM
    and SIGHUP, which nobody sends twice, act like the second. Before the first rollout starts there is nothing to lose,
    so the first signal of any kind ends the run.
    """

    def __init__(self, control: RunControl, on: "Screen | None") -> None:
        from nemo_gym._servers.processes.loop_watch import BLOCKED_AT_END_S, BLOCKED_S, LoopWatch

        task = asyncio.current_task()
        assert task is not None
        self._control = control
        self._on = on
        self._loop = asyncio.get_running_loop()
        self._task = task
        self._is_playing = self._is_ending = False
        self._timeout_s = math.inf
        self._watch = LoopWatch(
            on_signal=self._stop,
            on_blocked=lambda blockage: self._say(f"{blockage}\n{_BLOCKED_HINT}"),
            on_stuck=self._give_up,
            named_after_s=lambda: BLOCKED_AT_END_S if control.is_stopping else BLOCKED_S,
            most_blocked_s=lambda: BLOCKED_AT_END_S if self._is_ending else self._timeout_s,
        )
        # A model that is being loaded may hold the interpreter for long, and there is nothing wrong with that.
        self._watch.dumps_threads = False
        self.explain_lateness = self._watch.explain_lateness

    @contextmanager
    def catch(self) -> Iterator["RunInterrupts"]:
        """Catch signals and watch the event loop while the context lasts."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # Ignored signals stay ignored: `nohup` means it.
        with self._watch.watch(tuple(n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN)):
            yield self

    @contextmanager
    def guard_play(self, timeout_s: float | None = None) -> Iterator[None]:
        """Guard running rollouts: interrupt a server that blocks the loop for `timeout_s`."""
        self._is_playing = True
        self._timeout_s = timeout_s or math.inf
        self._watch.dumps_threads = True
        try:
            yield
        finally:
            self._timeout_s = math.inf

    def _stop(self, number: int) -> None:
        if self._is_ending or self._control.is_cancelling:
            self._exit(INTERRUPTED)
        if not self._is_playing:
            self._is_ending = True
            self._say("\nstopped before any rollout ran")
            self._loop.call_soon_threadsafe(self._task.cancel)
            return
        state = self._control.request_stop()
        if number != signal.SIGINT and state == "stopping":
            state = self._control.request_stop()
        self._is_ending = state == "cancelling"
        if self._is_ending:
            self._say("\ncanceling running rollouts; the results so far are kept")
        else:
            self._say("\nstopping: running rollouts may finish; Ctrl-C again cancels them")

    def _give_up(self, blockage: "Blockage") -> None:
        self._say(
            f"Error: the run ends as it stands: {blockage}, and cannot be interrupted.\n{_BLOCKED_HINT}; what has no "
            "result yet is run by `--resume`"
        )
        self._exit(INTERRUPTED if self._is_ending else 1)

    def _exit(self, code: int) -> None:
        if self._on is not None:
            with suppress(OSError):
                self._on.release()
        os._exit(code)

    def _say(self, text: str) -> None:
        with suppress(OSError, RuntimeError):  # the terminal is gone, or was just being written to
            render.note(text)


@contextmanager
def abort_on_server_death(served: "Served | None", control: RunControl) -> Iterator[float]:
    """Abort the run if a server process dies meanwhile; yield how long to hold failures back for that.

    `served` is None if the servers were already running.
    """

    def abort(death: "ServerDied") -> None:
        render.error(str(death))
        control.abort(
            f"server {death.name!r} {death.how}. What has not run yet, or was running, has lost no attempt.\n"
            "hint: the last lines of the server are above; run the same command again with `--resume`"
        )

    if served is None or not served.has_processes:
        yield 0.0
        return
    with served.call_on_death(abort):
        yield _HOLD_FAILURES_S
