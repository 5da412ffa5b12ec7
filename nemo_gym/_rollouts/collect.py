# SPDX-License-Identifier: Apache-2.0
"""The life of a run, from its plan to its final counts.

    with lock_run(paths):                     one run at a time writes these files
        run = plan_or_resume(paths, …)        plan      rows × repeats, checked as a whole, in a draft (`expand`)
                                              resume    what the record holds is not run again (`resume`)
        with run.open_journal() as journal:   begin     only now are an earlier run's files replaced (`journal`)
            await collect(run.rows, …)        dispatch  bounded, adaptive, stoppable (`dispatch`, `limiter`, `control`)
                                              play      every row gets an outcome (`play`)
                                              record    one line per outcome, durable
            journal.counts                    account   requested = scored + failed + not run

`run.rows` hands out rows one by one to whoever has room for another rollout; outcomes come back to one place, the loop
of `collect`, which alone writes to the journal. What runs a row in between, a player in this process or a worker
(`worker_pool`), knows neither plan nor journal.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nemo_gym._rollouts.control import EndpointGuard, FailureRateGuard, RunControl
from nemo_gym._rollouts.dispatch import dispatch
from nemo_gym._rollouts.expand import ExpandSettings, Plan, materialize
from nemo_gym._rollouts.input_lines import read_input
from nemo_gym._rollouts.journal import Journal
from nemo_gym._rollouts.limiter import Limiter
from nemo_gym._rollouts.outcomes import Outcome, Play, Row
from nemo_gym._rollouts.play import Observer
from nemo_gym._rollouts.resume import ResumeError, can_resume, find_remaining, read_by_repeat
from nemo_gym._rollouts.run_manifest import (
    Counts,
    GitState,
    Manifest,
    find_differences,
    hash_file,
    identify_input,
    read_manifest,
)
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._transport.failures import Failure
from nemo_gym._util.jsonl_files import write_rows


@dataclass
class Run:
    """What this session of a run has to do, and where its record goes."""

    paths: RunPaths
    manifest: Manifest
    rows: Iterator[Row]
    """Hands out each row to run once, to whoever asks for the next one."""
    left: int
    """The number of rows."""
    is_resumed: bool
    max_attempts: int | None = None
    """How often a failing rollout may run in total, across resumed runs."""
    plan: Plan | None = None
    """The plan, if it was made in this session."""

    @property
    def before(self) -> int:
        """How many of the planned rollouts are not run in this session."""
        return self.manifest.counts.requested - self.left

    def peek(self, number: int) -> list[Row]:
        """Return the first rows without handing them out."""
        first = list(islice(self.rows, number))
        self.rows = chain(first, self.rows)
        return first

    def open_journal(self) -> Journal:
        """Begin or resume: from now on the files are those of this run."""
        if self.is_resumed:
            return Journal.resume(self.paths, self.manifest, max_attempts=self.max_attempts)
        return Journal.begin(self.paths, self.manifest, max_attempts=self.max_attempts)


@dataclass(frozen=True)
class RunIdentity:
    """What rollouts in one file have in common; the caller masks the secrets."""

    source: str
    """The input file, or `-`."""
    settings: Mapping[str, Any]
    config: Mapping[str, Any] | None = None
    """The config of the servers; None if it is unknown, and then it is not compared."""
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
    """Resume the run whose files are at `paths` if `resume` is true and there is one; otherwise plan a new run.

    The caller holds the lock. Nothing of an earlier run is changed before the journal is opened, except that a torn
    last line is repaired. `load_settings` is called only for a new plan. `notice` is called with what the user should
    know, `on_result` with every result of the earlier run. Raise ResumeError if the earlier run was a different one.
    """
    if resume and can_resume(paths):
        return _resume(paths, identity, max_attempts, notice, on_result)
    if resume:
        notice(f"nothing to resume at {paths.output}: starting over")
    plan = materialize(read_input(identity.source), load_settings(), identity.source, paths)
    for warning in plan.warnings:
        notice(warning)
    counts = Counts(requested=plan.rollouts, not_played=plan.rollouts)
    manifest = _describe(identity, counts, paths.materialized_draft, plan.sha256)
    rows = read_by_repeat(paths.materialized)  # opened with the first row, once the draft has been moved there
    return Run(paths, manifest, rows, plan.rollouts, False, max_attempts, plan)


def _resume(
    paths: RunPaths,
    identity: RunIdentity,
    max_attempts: int,
    notice: Callable[[str], None],
    on_result: Callable[[Row], None] | None,
) -> Run:
    before = read_manifest(paths.manifest)
    plan_sha256 = hash_file(paths.materialized)
    if before is not None and before.plan_sha256 not in (None, plan_sha256):
        raise ResumeError(
            f"{paths.materialized} has changed since the run began: its SHA-256 is {plan_sha256[:12]}…, "
            f"and the run was planned with {before.plan_sha256[:12]}….\n"
            "Rollouts of the old rows and of the new ones would be mixed under the same numbers.\n"
            "hint: put the file back, or run without `--resume` to start over; to change tasks, change the input file"
        )
    resumption = find_remaining(paths, max_attempts, on_result)
    for line in (*resumption.notices, str(resumption)):
        notice(line)
    manifest = _describe(identity, resumption.counts, paths.materialized, plan_sha256)
    if identity.config is None and before is not None:
        manifest = manifest.model_copy(update={"config": before.config})
    if before is not None and (changed := find_differences(before, manifest)):
        raise ResumeError(
            f"{paths.output} belongs to a different run:\n" + "\n".join(f"  {line}" for line in changed) + "\n"
            "hint: repeat the original command, choose another output, or run without `--resume` to start over"
        )
    return Run(paths, manifest.continue_from(before), resumption.read_remaining(), resumption.left, True, max_attempts)


def take_over_plan(
    paths: RunPaths, source: Path, rows: Iterator[Row], left: int, done: int, planned: Iterable[Row] | None
) -> Run:
    """Make a run of `rows` that do not come from an input file: `left` of them, with `done` already scored.

    `planned` are the planned rows according to the run's files; None adds to existing files.
    """
    materialized = paths.output
    plan_sha256 = None
    if planned is not None:
        materialized = paths.materialized_draft
        write_rows(materialized, planned)
        plan_sha256 = hash_file(materialized)
    counts = Counts(requested=done + left, scored=done, not_played=left)
    manifest = _describe(RunIdentity(str(source), {}), counts, materialized, plan_sha256)
    return Run(paths, manifest, rows, left, is_resumed=planned is None)


def _describe(identity: RunIdentity, counts: Counts, materialized: Path, plan_sha256: str | None) -> Manifest:
    return Manifest(
        counts=counts,
        input=identify_input(identity.source, materialized),
        plan_sha256=plan_sha256,
        settings=dict(identity.settings),
        config=dict(identity.config or {}),
        git=identity.git,
    )


@dataclass(frozen=True)
class CollectSettings:
    """The limits of a run."""

    max_failure_rate: float | None = None
    """The share of failures among recent rollouts at which the run gives up."""
    give_up_on_endpoint: bool = False
    """Give up when the model refuses the key of every rollout."""
    check_endpoint: bool = False
    """Also give up when the first calls find nothing at the model's URL."""
    hold_failures_s: float = 0.0
    """How long to hold back a failure in case a server has died and this has not been noticed yet."""


async def collect(
    rows: Iterator[Row],
    play: Play,
    journal: Journal,
    limiter: Limiter,
    control: RunControl,
    settings: CollectSettings,
    on_outcome: Callable[[Outcome], None],
    observer: Observer | None = None,
) -> Counts:
    """Run `rows` and record their outcomes; return what became of all planned rollouts.

    `observer` is told what was recorded.
    """
    endpoint = EndpointGuard(journal.counts.not_played, check_reachable=settings.check_endpoint)
    guard = None
    if settings.max_failure_rate is not None:
        guard = FailureRateGuard(settings.max_failure_rate)

    def note_retry(failure: Failure) -> None:
        limiter.note_retry(failure)
        if settings.give_up_on_endpoint and (reason := endpoint.note_failure(failure)):
            control.abort(reason)

    outcomes = dispatch(
        rows, lambda row: play(row, note_retry), limiter, control, hold_failures_s=settings.hold_failures_s
    )
    async with AsyncExitStack() as stack:
        if observer is not None:
            await stack.enter_async_context(aclosing(observer))
        await stack.enter_async_context(aclosing(outcomes))
        async for outcome in outcomes:
            journal.record(outcome)
            journal.most_in_flight = limiter.most_in_flight
            on_outcome(outcome)
            if observer is not None and (reason := await observer.note_recorded(outcome)):
                control.abort(reason)
            if settings.give_up_on_endpoint and (reason := endpoint.note(outcome)):
                control.abort(reason)
            if guard is not None and (reason := guard.note(outcome)):
                control.abort(reason)
    if control.is_stopping:
        journal.close("interrupted")
    return journal.counts
