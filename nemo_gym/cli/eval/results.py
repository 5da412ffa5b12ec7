# SPDX-License-Identifier: Apache-2.0
"""Report the results of a run: metrics in a file, in a table and in experiment trackers, and an exit code.

Every number says how many rollouts it covers. Tracker code is loaded only if the config names a tracker, and a tracker
that fails is reported but never changes the result of a run.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nemo_gym._results.aggregate_files import (
    AgentAggregate,
    Requested,
    aggregate_with,
    find_task_fields,
    make_metric_table,
    write_aggregates,
)
from nemo_gym._results.result_rows import Incidents, strip_row
from nemo_gym._rollouts.outcomes import Outcome, Scored
from nemo_gym._rollouts.run_manifest import Counts
from nemo_gym._rollouts.run_paths import RunPaths, write_error
from nemo_gym._util.jsonl_files import dumps_line, read_rows
from nemo_gym.cli import render

if TYPE_CHECKING:  # slow to import, and the commands that only read files do without
    from omegaconf import DictConfig

    from nemo_gym._rollouts.control import RunControl
    from nemo_gym.cli.eval.run_settings import EvalRunConfig
    from nemo_gym.rollout_reverification import RolloutReverificationConfig
    from nemo_gym.server_utils import ServerClient

INTERRUPTED = 130
_BUFFER_BYTES = 1 << 18

Export = Callable[[Sequence[AgentAggregate], Path], Awaitable[None]]
"""Sends the metrics of a run and the rollouts in a file to trackers."""


async def report(
    paths: RunPaths,
    counts: Counts,
    client: "ServerClient",
    settings: "EvalRunConfig | RolloutReverificationConfig",
    *,
    ask_for: Collection[str] | None = None,
    rollouts: Path | None = None,
    requested: Requested | None = None,
    task_metrics: Collection[str] = (),
) -> list[AgentAggregate]:
    """Aggregate the rollouts of a run, write the metrics and print them, unless `settings` asks for no aggregation.

    `ask_for`: the agents to ask for their own metrics; None for all. `rollouts`: a file with what the metrics need of
    the rollouts, if there is one besides the output. `requested`: None takes the number from the plan.
    `task_metrics`: fields of the tasks that get a row in the table like those of the verifier.
    """
    if settings.disable_aggregation:
        return []
    from nemo_gym._rollouts.rollout_calls import metrics_from_servers

    if requested is None:
        requested = Requested.count_in_files([paths.materialized] if paths.materialized.is_file() else [])
    ask = metrics_from_servers(client, render.note)
    aggregates = await aggregate_with(ask, [rollouts or paths.output], requested=requested, ask_for=ask_for)
    task_fields = find_task_fields(paths.materialized, paths.output)
    left_out = tuple(name for name in task_fields if name not in task_metrics)
    aggregates = [replace(one, task_fields=left_out) for one in aggregates]
    try:
        write_aggregates(paths.aggregate_metrics, aggregates)
    except OSError as error:
        hint = "the rollouts are recorded; free some disk space, then run the same command again with `--resume`"
        raise write_error(paths.aggregate_metrics, error, hint) from error
    if settings.json_summary:
        render.json_data(summarize(paths, counts, aggregates))
    else:
        show(paths, counts, aggregates)
    return aggregates


def summarize(paths: RunPaths, counts: Counts, aggregates: Iterable[AgentAggregate]) -> dict[str, Any]:
    """Return the summary of a run, for JSON."""
    return {
        "schema": 1,
        "rollouts": str(paths.output),
        "failures": str(paths.failures) if counts.failed else None,
        "aggregate_metrics": str(paths.aggregate_metrics),
        "counts": counts.model_dump(),
        "agents": [aggregate.head() for aggregate in aggregates],
    }


def show(paths: RunPaths, counts: Counts, aggregates: Sequence[AgentAggregate]) -> None:
    """Print a run as a table, and where its files are."""
    if aggregates:
        render.data("")
        render.table(make_metric_table(aggregates))
    render.data(f"\n{counts.scored} scored of {counts.requested} requested, {counts.failed} failed")
    for kind, count in sorted(counts.by_kind.items()):
        render.data(f"  {kind}: {count}")
    n_scored = sum(aggregate.n_scored for aggregate in aggregates)
    for line in Incidents.sum(aggregate.incidents for aggregate in aggregates).describe(n_scored):
        render.data(line)
    render.data(f"rollouts: {paths.output}")
    render.data(f"metrics:  {paths.aggregate_metrics}")
    if counts.failed:
        render.data(f"failures: {paths.failures}")


def choose_exit_code(counts: Counts, control: "RunControl", settings: "EvalRunConfig", given_up: int = 0) -> int:
    """Return the exit code, after telling what is missing and what to do; `given_up` failures are not run again."""
    if control.abort_reason is not None and counts.scored < counts.requested:
        render.error(f"the run was aborted.\n{control.abort_reason}")
        return 1
    not_played = counts.requested - counts.scored - counts.failed
    if not_played:
        render.note(f"{not_played} of {counts.requested} rollouts did not run.")
        render.note("hint: run the same command again with `--resume`")
        return INTERRUPTED if control.is_stopping else 1
    allowed = settings.count_allowed_failures(counts.requested)
    if counts.failed > allowed:
        again = "them"
        if given_up:
            left = max(counts.failed - given_up, 0)
            why = f"{given_up} failed for good, or as often as `NEMO_GYM_MAX_ROLLOUT_ATTEMPTS` allows"
            again = f"{left or 'none'} of them ({why})"
        render.note(
            f"{counts.failed} of {counts.requested} rollouts have no reward ({allowed} may); see the failures file.\n"
            f"hint: `--resume` runs {again} again; `--allow-failures` accepts some"
        )
        return 1
    return 0


# --- what the metrics need, noted as rollouts end ---------------------------------------------------------------------


class Scores:
    """The scored rollouts of a run without their bulk, in a file of the same form, to avoid reading the output.

    They are a copy: if they are incomplete, as in a resumed run, the rollouts themselves are read.
    """

    def __init__(self, paths: RunPaths, *, complete: bool) -> None:
        """`complete` is False if some rollouts will not be added here."""
        self._paths = paths
        self._complete = complete
        self._file: BinaryIO | None = None

    def add(self, outcome: Outcome) -> None:
        """Add a finished rollout."""
        if not self._complete or not isinstance(outcome, Scored):
            return
        try:
            if self._file is None:
                self._file = self._paths.scores.open("wb", buffering=_BUFFER_BYTES)
            self._file.write(dumps_line(strip_row(outcome.result)))
        except (OSError, TypeError):  # a full disk, or text that is not Unicode: the rollouts are recorded anyway
            self._complete = False

    def find_rollouts(self) -> Path:
        """Return the file to compute metrics from."""
        if self._complete and self._file is not None:
            try:
                self._file.flush()
                return self._paths.scores
            except OSError:
                self._complete = False
        return self._paths.output

    def close(self) -> None:
        """Delete the file."""
        with suppress(OSError):  # buffered text may not fit on the disk
            if self._file is not None:
                self._file.close()
        self._paths.scores.unlink(missing_ok=True)


@contextmanager
def keep_scores(paths: RunPaths, *, complete: bool) -> Iterator[Scores]:
    """Keep scores while the context lasts."""
    scores = Scores(paths, complete=complete)
    try:
        yield scores
    finally:
        scores.close()


# --- experiment trackers ----------------------------------------------------------------------------------------------


async def _export_nothing(aggregates: Sequence[AgentAggregate], rollouts: Path) -> None:
    """Send nothing: no tracker is configured."""


@contextmanager
def open_export(config: "DictConfig", *, with_rollouts: bool) -> Iterator[Export]:
    """Open the trackers of a run; they are closed when the context ends, as failed if an error ends it."""
    if not any(str(key).startswith(("wandb_", "mlflow_")) for key in config):
        yield _export_nothing
        return
    import asyncio

    from nemo_gym.exporters import (
        export_aggregates,
        export_rollouts,
        get_exporters,
        setup_exporters,
        teardown_exporters,
    )

    async def export(aggregates: Sequence[AgentAggregate], rollouts: Path) -> None:
        await asyncio.to_thread(export_aggregates, aggregates)
        if with_rollouts and get_exporters():
            await asyncio.to_thread(export_rollouts, RowsOf(rollouts))

    setup_exporters(config)
    failed = True
    try:
        yield export
        failed = False
    finally:
        teardown_exporters(failed=failed)


class RowsOf:
    """The rows of a file, read again for each reader, so that none has to hold them all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return read_rows(self._path, torn_tail_ok=True)
