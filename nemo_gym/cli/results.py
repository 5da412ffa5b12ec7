# SPDX-License-Identifier: Apache-2.0
"""What a run came to: metrics written to their file, and a table that says of how many rollouts each number is."""

from collections.abc import Iterable, Sequence
from typing import Any

from aiohttp import ClientError

from nemo_gym._results.aggregate import AgentAggregate, Requested, aggregate_with, write_aggregates
from nemo_gym._results.summary import table
from nemo_gym._rollouts.manifest import Counts
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym.cli import render
from nemo_gym.errors import ServerCallError
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status


async def report(paths: RunPaths, counts: Counts, client: ServerClient, *, as_json: bool) -> None:
    """Aggregate the rollouts of a run, write the metrics and print them."""

    async def ask(agent: str, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        """What the agent's own server makes of its rollouts; None leaves it to us."""
        try:
            response = await client.post(agent, "/aggregate_metrics", json={"verify_responses": rows})
            await raise_for_status(response)
            metrics: dict[str, Any] = await get_response_json(response)
            return metrics
        except (ServerCallError, ClientError) as error:
            render.note(f"{agent!r} could not aggregate its rollouts itself, so they are aggregated here: {error}")
            return None

    requested = Requested.in_files([paths.materialized])
    aggregates = await aggregate_with(ask, [paths.output], requested=requested)
    write_aggregates(paths.aggregate_metrics, aggregates)
    if as_json:
        render.json_data(summary(paths, counts, aggregates))
    else:
        show(paths, counts, aggregates)


def summary(paths: RunPaths, counts: Counts, aggregates: Iterable[AgentAggregate]) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "schema": 1,
        "rollouts": str(paths.output),
        "failures": str(paths.failures) if paths.failures.exists() else None,
        "aggregate_metrics": str(paths.aggregate_metrics),
        "counts": counts.model_dump(),
        "agents": [aggregate.head() for aggregate in aggregates],
    }


def show(paths: RunPaths, counts: Counts, aggregates: Sequence[AgentAggregate]) -> None:
    """A run as a table, and where its files are."""
    if aggregates:
        render.data("")
        render.table(table(None, aggregates))
    render.data(f"\n{counts.scored} scored of {counts.requested} requested, {counts.failed} failed")
    for kind, count in sorted(counts.by_kind.items()):
        render.data(f"  {kind}: {count}")
    render.data(f"rollouts: {paths.output}")
    render.data(f"metrics:  {paths.aggregate_metrics}")
    if counts.failed:
        render.data(f"failures: {paths.failures}")
