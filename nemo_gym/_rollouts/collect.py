# SPDX-License-Identifier: Apache-2.0
"""Play every rollout that is left and record how each ended: the engine's table of contents.

plan      `expand.materialize`: rows × repeats, checked as a whole, in the draft of the materialized inputs
resume    `resume.what_is_left`: what the record holds already is not played again
dispatch  `dispatch.dispatch`: bounded, adaptive, stoppable; `play.Player` gives every row an outcome
record    `journal.Journal`: one line an outcome, durable
account   the journal's counts: requested = scored + failed + not played
"""

from collections.abc import Callable, Iterator
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from typing import Protocol

from nemo_gym._rollouts.control import EndpointGuard, FailureRateGuard, RunControl
from nemo_gym._rollouts.dispatch import Play, dispatch
from nemo_gym._rollouts.journal import Journal, checked_reward
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.manifest import Counts
from nemo_gym._rollouts.play import AttachTrajectory, Player, Post, Reply
from nemo_gym._rollouts.types import Outcome, Row
from nemo_gym._transport.failures import Failure


@dataclass(frozen=True)
class CollectSettings:
    """What bounds a run."""

    timeout_s: float | None = None
    """Deadline of one rollout, with all its attempts."""
    max_failure_rate: float | None = None
    """The share of failures among the latest rollouts at which the run gives itself up."""
    fail_on_tool_error: bool = False
    """A rollout in which a tool crashed is a failure, whatever its reward."""
    give_up_on_endpoint: bool = False
    """Give the run up when the model refuses the key of every rollout."""
    endpoint_must_be_there: bool = False
    """Give it up as well when its first calls find nobody at the URL of the model."""
    explain_lateness: Callable[[float], str | None] | None = None
    """Says what has kept all rollouts waiting in the last so many seconds, if anything has."""
    hold_failures_s: float = 0.0
    """How long to keep a failure back in case that a server has died and its death is still to be noticed."""


class Witness(Protocol):
    """Adds to an outcome what was observed of the rollout beside its result."""

    async def begin(self, row: Row) -> None:
        """An attempt at `row` is about to start."""

    async def complete(self, outcome: Outcome) -> Outcome:
        """`outcome` with what was observed."""

    async def recorded(self, outcome: Outcome) -> str | None:
        """`outcome` was recorded; the reason to give the run up, if there is one now."""

    async def aclose(self) -> None:
        """The collection is over."""


def witnessed(player: Player, witness: Witness) -> Play:
    """How `player` plays, with what `witness` saw in the outcome."""

    async def play(row: Row) -> Outcome:
        return await witness.complete(await player.play(row))

    return play


def announced(post: Post, witness: Witness) -> Post:
    """`post`, with every attempt announced to `witness`."""

    async def announced_post(agent: str, row: Row) -> Reply:
        await witness.begin(row)
        return await post(agent, row)

    return announced_post


async def collect(
    rows: Iterator[Row],
    post: Post,
    journal: Journal,
    limiter: Limiter,
    control: RunControl,
    settings: CollectSettings,
    on_outcome: Callable[[Outcome], None],
    witness: Witness | None = None,
    attach_trajectory: AttachTrajectory | None = None,
) -> Counts:
    """Play `rows` and record their outcomes; what has become of all that was planned.

    Without a `witness`, `attach_trajectory` sees to what agents have observed by themselves.
    """
    if witness is not None:
        post = announced(post, witness)
    endpoint = EndpointGuard(journal.counts.not_played, must_be_there=settings.endpoint_must_be_there)

    def retried(failure: Failure) -> None:
        limiter.retried(failure)
        if settings.give_up_on_endpoint and (reason := endpoint.note_failure(failure)):
            control.abort(reason)

    player = Player(
        post,
        timeout_s=settings.timeout_s,
        checked_reward=checked_reward,
        on_retry=retried,
        fail_on_tool_error=settings.fail_on_tool_error,
        attach_trajectory=attach_trajectory if witness is None else None,
        explain_lateness=settings.explain_lateness,
    )
    play = player.play if witness is None else witnessed(player, witness)
    guard = FailureRateGuard(settings.max_failure_rate) if settings.max_failure_rate is not None else None
    async with (
        aclosing(witness) if witness is not None else nullcontext(),
        aclosing(dispatch(rows, play, limiter, control, hold_failures_s=settings.hold_failures_s)) as outcomes,
    ):
        async for outcome in outcomes:
            journal.record(outcome)
            journal.most_in_flight = limiter.most_in_flight
            on_outcome(outcome)
            if witness is not None and (reason := await witness.recorded(outcome)):
                control.abort(reason)
            if settings.give_up_on_endpoint and (reason := endpoint.note(outcome)):
                control.abort(reason)
            if guard is not None and (reason := guard.note(outcome)):
                control.abort(reason)
    return journal.counts
