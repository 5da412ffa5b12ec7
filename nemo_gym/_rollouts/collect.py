# SPDX-License-Identifier: Apache-2.0
"""Play every rollout that is left and record how each ended: the engine's table of contents.

plan      `expand.materialize`: rows × repeats, checked as a whole, in the draft of the materialized inputs
resume    `resume.what_is_left`: what the record holds already is not played again
dispatch  `dispatch.dispatch`: bounded, adaptive, stoppable; `play.Player` gives every row an outcome
record    `journal.Journal`: one line an outcome, durable
account   the journal's counts: requested = scored + failed + not played
"""

from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass

from nemo_gym._rollouts.control import FailureRateGuard, RunControl
from nemo_gym._rollouts.dispatch import dispatch
from nemo_gym._rollouts.journal import Journal, checked_reward
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.manifest import Counts
from nemo_gym._rollouts.play import Player, Post
from nemo_gym._rollouts.types import Outcome, Row


@dataclass(frozen=True)
class CollectSettings:
    """What bounds a run."""

    timeout_s: float | None = None
    """Deadline of one rollout, with all its attempts."""
    max_failure_rate: float | None = None
    """The share of failures among the latest rollouts at which the run gives itself up."""


async def collect(
    rows: Iterator[Row],
    post: Post,
    journal: Journal,
    limiter: Limiter,
    control: RunControl,
    settings: CollectSettings,
    on_outcome: Callable[[Outcome], None],
) -> Counts:
    """Play `rows` and record their outcomes; what has become of all that was planned."""
    player = Player(post, timeout_s=settings.timeout_s, checked_reward=checked_reward, on_retry=limiter.retried)
    guard = FailureRateGuard(settings.max_failure_rate) if settings.max_failure_rate is not None else None
    async with aclosing(dispatch(rows, player.play, limiter, control)) as outcomes:
        async for outcome in outcomes:
            journal.record(outcome)
            on_outcome(outcome)
            if guard is not None and (reason := guard.note(outcome)):
                control.abort(reason)
    return journal.counts
