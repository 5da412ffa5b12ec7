# SPDX-License-Identifier: Apache-2.0
"""What a run came to: metrics written to their file, and a table that says of how many rollouts each number is."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym._results.aggregate import AgentAggregate, Requested, aggregate_with, write_aggregates
from nemo_gym._results.incidents import Incidents
from nemo_gym._results.summary import table
from nemo_gym._rollouts.manifest import Counts
from nemo_gym._rollouts.paths import RunPaths, write_error
from nemo_gym.cli import render

if TYPE_CHECKING:
    from nemo_gym.server_utils import ServerClient


async def report(
    paths: RunPaths,
    counts: Counts,
    client: "ServerClient",
    *,
    as_json: bool,
    ask_for: Collection[str] | None = None,
    rollouts: Path | None = None,
    requested: Requested | None = None,
) -> list[AgentAggregate]:
    """Aggregate the rollouts of a run, write the metrics and print them.

    `ask_for`: the agents that are asked for metrics of their own; None for all. `rollouts`: a file that holds what the
    metrics need of the rollouts, if there is one besides the output. `requested`: None leaves it to the plan to say.
    """
    # What calls servers is slow to import, and the commands that only read files do without.
    from nemo_gym.rollout_collection import metrics_from_servers

    if requested is None:
        requested = Requested.in_files([paths.materialized] if paths.materialized.is_file() else [])
    ask = metrics_from_servers(client, render.note)
    aggregates = await aggregate_with(ask, [rollouts or paths.output], requested=requested, ask_for=ask_for)
    try:
        write_aggregates(paths.aggregate_metrics, aggregates)
    except OSError as error:
        hint = "the rollouts are recorded; make room, then run the same command again with `--resume`"
        raise write_error(paths.aggregate_metrics, error, hint) from error
    if as_json:
        render.json_data(summary(paths, counts, aggregates))
    else:
        show(paths, counts, aggregates)
    return aggregates


def summary(paths: RunPaths, counts: Counts, aggregates: Iterable[AgentAggregate]) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "schema": 1,
        "rollouts": str(paths.output),
        "failures": str(paths.failures) if counts.failed else None,
        "aggregate_metrics": str(paths.aggregate_metrics),
        "counts": counts.model_dump(),
        "agents": [aggregate.head() for aggregate in aggregates],
    }


def show(paths: RunPaths, counts: Counts, aggregates: Sequence[AgentAggregate]) -> None:
    """A run as a table, and where its files are."""
    if aggregates:
        render.data("")
        render.table(table(aggregates))
    render.data(f"\n{counts.scored} scored of {counts.requested} requested, {counts.failed} failed")
    for kind, count in sorted(counts.by_kind.items()):
        render.data(f"  {kind}: {count}")
    n_scored = sum(aggregate.n_scored for aggregate in aggregates)
    for line in Incidents.together(aggregate.incidents for aggregate in aggregates).lines(n_scored):
        render.data(line)
    render.data(f"rollouts: {paths.output}")
    render.data(f"metrics:  {paths.aggregate_metrics}")
    if counts.failed:
        render.data(f"failures: {paths.failures}")
