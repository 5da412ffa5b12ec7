# SPDX-License-Identifier: Apache-2.0
"""The life of a run, from its plan to its last count.

    with lock_run(paths):                     one run at a time writes these files
        run = plan_or_resume(paths, …)        plan      rows × repeats, checked as a whole, in a draft (`expand`)
                                              resume    what the record holds is not played again (`resume`)
        with run.open_journal() as journal:   begin     only now the files of an earlier run give way (`journal`)
            await collect(run.rows, …)        dispatch  bounded, adaptive, stoppable (`dispatch`, `limiter`, `control`)
                                              play      every row gets an outcome (`play`)
                                              record    one line an outcome, durable
            journal.counts                    account   requested = scored + failed + not played

Rows are handed out one by one, by `run.rows`, to whoever has room for another rollout; outcomes come back to one place,
the loop of `collect`, which alone writes to the journal. Who plays a row in between, a player of this process or a
worker (`worker_pool`), knows neither plan nor journal.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nemo_gym._rollouts.control import EndpointGuard, FailureRateGuard, RunControl
from nemo_gym._rollouts.dispatch import Play, dispatch
from nemo_gym._rollouts.expand import ExpandSettings, Plan, materialize
from nemo_gym._rollouts.inputs import read_input
from nemo_gym._rollouts.journal import Journal
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.manifest import (
    Counts,
    GitState,
    Manifest,
    find_differences,
    identify_input,
    read_manifest,
)
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym._rollouts.play import Witness
from nemo_gym._rollouts.resume import ResumeError, can_resume, find_left, read_by_repeat
from nemo_gym._rollouts.types import OnRetry, Outcome, Row
from nemo_gym._transport.failures import Failure
from nemo_gym._util.jsonl import write_rows


@dataclass
class Run:
    """What this session of a run has to play, and where its record goes."""

    paths: RunPaths
    manifest: Manifest
    rows: Iterator[Row]
    """Hands out the rows to play, each once, to whoever asks for the next one."""
    left: int
    """How many these are."""
    is_resumed: bool
    max_attempts: int | None = None
    """How often a rollout that fails may be played in all, over resumed runs."""
    plan: Plan | None = None
    """The plan, if it was made in this session."""

    @property
    def before(self) -> int:
        """Return how many of the planned rollouts are not played in this session."""
        return self.manifest.counts.requested - self.left

    def peek(self, number: int) -> list[Row]:
        """Return the first rows without handing them out."""
        first = list(islice(self.rows, number))
        self.rows = chain(first, self.rows)
        return first

    def open_journal(self) -> Journal:
        """Begin or go on: from now on the files are those of this run."""
        begin = Journal.resume if self.is_resumed else Journal.begin
        return begin(self.paths, self.manifest, max_attempts=self.max_attempts)


@dataclass(frozen=True)
class RunIdentity:
    """What rollouts that end up in one file have in common; secrets are masked by whoever passes it in."""

    source: str
    """The input file, or `-`."""
    settings: Mapping[str, Any]
    config: Mapping[str, Any] | None = None
    """The config of the servers; None if it is not known, and then it is not compared."""
    git: GitState | None = None


def plan_or_resume(
    paths: RunPaths,
    identity: RunIdentity,
    load_settings: Callable[[], ExpandSettings],
    *,
    resume: bool,
    max_attempts: int,
    notice: Callable[[str], None] = lambda text: None,
    on_result: Callable[[Row], None] | None = None,
) -> Run:
    """Go on with the run whose files lie at `paths` if `resume` says so and there is one, else plan a new one.

    The caller holds the lock. Nothing of an earlier run is touched before the journal is opened, save that a torn last
    line is repaired. `load_settings` is called for a new plan only. `notice` is told what the user should know,
    `on_result` every result of the earlier run. ResumeError if the earlier run was a different one.
    """
    if resume and can_resume(paths):
        return _resume(paths, identity, max_attempts, notice, on_result)
    if resume:
        notice(f"nothing to resume at {paths.output}: beginning anew")
    plan = materialize(read_input(identity.source), load_settings(), identity.source, paths)
    for warning in plan.warnings:
        notice(warning)
    counts = Counts(requested=plan.rollouts, not_played=plan.rollouts)
    manifest = _describe(identity, counts, paths.materialized_draft)
    rows = read_by_repeat(paths.materialized)  # opened with the first row, when the draft has taken its place
    return Run(paths, manifest, rows, plan.rollouts, False, max_attempts, plan)


def _resume(
    paths: RunPaths,
    identity: RunIdentity,
    max_attempts: int,
    notice: Callable[[str], None],
    on_result: Callable[[Row], None] | None,
) -> Run:
    resumption = find_left(paths, max_attempts, on_result)
    for line in (*resumption.notices, str(resumption)):
        notice(line)
    before = read_manifest(paths.manifest)
    manifest = _describe(identity, resumption.counts, paths.materialized)
    if identity.config is None and before is not None:
        manifest = manifest.model_copy(update={"config": before.config})
    if before is not None and (changed := find_differences(before, manifest)):
        raise ResumeError(
            f"{paths.output} belongs to a different run:\n" + "\n".join(f"  {line}" for line in changed) + "\n"
            "hint: repeat the original command, choose another output, or run without `--resume` to begin anew"
        )
    return Run(paths, manifest.continue_from(before), resumption.read_left(), resumption.left, True, max_attempts)


def take_over_plan(
    paths: RunPaths, source: Path, rows: Iterator[Row], left: int, done: int, planned: Iterable[Row] | None
) -> Run:
    """Make a run of `rows` that come from somewhere else than an input: `left` of them, where `done` are scored.

    `planned` are the rows that its files say were planned; None adds to the files that are there.
    """
    if planned is not None:
        write_rows(paths.materialized_draft, planned)
    counts = Counts(requested=done + left, scored=done, not_played=left)
    materialized = paths.output if planned is None else paths.materialized_draft
    manifest = _describe(RunIdentity(str(source), {}), counts, materialized)
    return Run(paths, manifest, rows, left, is_resumed=planned is None)


def _describe(identity: RunIdentity, counts: Counts, materialized: Path) -> Manifest:
    return Manifest(
        counts=counts,
        input=identify_input(identity.source, materialized),
        settings=dict(identity.settings),
        config=dict(identity.config or {}),
        git=identity.git,
    )


@dataclass(frozen=True)
class CollectSettings:
    """What bounds a run."""

    max_failure_rate: float | None = None
    """The share of failures among the latest rollouts at which the run gives itself up."""
    give_up_on_endpoint: bool = False
    """Give the run up when the model refuses the key of every rollout."""
    endpoint_must_be_there: bool = False
    """Give it up as well when its first calls find nobody at the URL of the model."""
    hold_failures_s: float = 0.0
    """How long to keep a failure back in case that a server has died and its death is still to be noticed."""


async def collect(
    rows: Iterator[Row],
    play_with: Callable[[OnRetry], Play],
    journal: Journal,
    limiter: Limiter,
    control: RunControl,
    settings: CollectSettings,
    on_outcome: Callable[[Outcome], None],
    witness: Witness | None = None,
) -> Counts:
    """Play `rows` and record their outcomes; return what has become of all that was planned.

    `play_with` returns what plays a row, given who is to hear of attempts that failed. `witness` is told what was
    recorded.
    """
    endpoint = EndpointGuard(journal.counts.not_played, must_be_there=settings.endpoint_must_be_there)
    guard = FailureRateGuard(settings.max_failure_rate) if settings.max_failure_rate is not None else None

    def note_retry(failure: Failure) -> None:
        limiter.note_retry(failure)
        if settings.give_up_on_endpoint and (reason := endpoint.note_failure(failure)):
            control.abort(reason)

    outcomes = dispatch(rows, play_with(note_retry), limiter, control, hold_failures_s=settings.hold_failures_s)
    async with aclosing(witness) if witness is not None else nullcontext(), aclosing(outcomes):
        async for outcome in outcomes:
            journal.record(outcome)
            journal.most_in_flight = limiter.most_in_flight
            on_outcome(outcome)
            if witness is not None and (reason := await witness.note_recorded(outcome)):
                control.abort(reason)
            if settings.give_up_on_endpoint and (reason := endpoint.note(outcome)):
                control.abort(reason)
            if guard is not None and (reason := guard.note(outcome)):
                control.abort(reason)
    if control.is_stopping:
        journal.close("interrupted")
    return journal.counts
