# SPDX-License-Identifier: Apache-2.0
"""Show the progress of a run: a live display on a terminal, a line now and then elsewhere, nothing if quiet.

A separate thread refreshes it a few times a second, so a rollout only has to be counted, and the display keeps moving
while no rollout ends. How the live display looks is in `live_display`.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from nemo_gym._results.run_summary import RunSummary, Standing
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.outcomes import Outcome
from nemo_gym._transport.retries import RETRIES
from nemo_gym.cli import render

_LINE_EVERY_S = 10.0
_REDRAW_EVERY_S = 0.25


class Screen(Protocol):
    """Where a run is shown."""

    every_s: float
    """How often it is refreshed."""

    def begin(self, standing: Standing) -> None: ...

    def refresh(self, standing: Standing) -> None: ...

    def end(self, standing: Standing) -> None:
        """Show what stays when the run is over."""

    def release(self) -> None:
        """Give the terminal back: this process is about to end without further output."""


class Lines:
    """A line now and then, for logs and pipes."""

    every_s = _LINE_EVERY_S

    def begin(self, standing: Standing) -> None:
        """Print nothing: nothing is known yet."""

    def refresh(self, standing: Standing) -> None:
        render.note(standing.line())

    def end(self, standing: Standing) -> None:
        render.note(standing.line())

    def release(self) -> None:
        """Do nothing: a line is complete when it is printed."""


@contextmanager
def open_screen(*, quiet: bool) -> Iterator[Screen | None]:
    """Open the screen of a run: the terminal, which all output then goes through, or lines; None if `quiet`."""
    if quiet:
        yield None
    elif not (sys.stderr.isatty() and os.environ.get("TERM", "dumb").lower() not in ("dumb", "unknown")):
        yield Lines()
    else:
        from nemo_gym.cli.eval.live_display import open_terminal  # loads rich

        with open_terminal(_REDRAW_EVERY_S) as display:
            yield display


@contextmanager
def show_progress(
    summary: RunSummary, limiter: Limiter, on: Screen | None, *, before: int = 0
) -> Iterator[Callable[[Outcome], None]]:
    """Count outcomes into `summary`, and show progress and the final result."""
    standing = Standing(summary, limiter, RETRIES, before)
    summary.begin()
    if on is None:
        try:
            yield summary.add
        finally:
            summary.finish()
        return
    over = threading.Event()

    def refresh() -> None:
        while not over.wait(on.every_s):
            on.refresh(standing)

    thread = threading.Thread(target=refresh, name="progress", daemon=True)
    on.begin(standing)
    thread.start()
    try:
        with RETRIES.show():
            yield summary.add
    finally:
        summary.finish()
        over.set()
        thread.join()
        on.end(standing)
